"""A short latency benchmark without Spark, on real nodes with emulated links; and how its figures are judged."""

from pathlib import Path
from typing import Any

import pytest

from bench.latency import (
    OURS,
    OWPOA,
    PER_CHAIN,
    STRUCTURED,
    Plan,
    is_held,
    is_settling,
    judged,
    levels_of,
    links_ms,
    ratios_of,
    run_plan,
    with_another,
)

SHORT = Plan(
    rates={"debs2015.frequent_routes": (80.0, 160.0)},
    rounds=2,
    warm_s=1.0,
    measure_s=2.0,
    processes=1,
    spark=False,
    structured=False,
)


@pytest.mark.slow
def test_both_kinds_of_nodes_are_measured_with_the_same_rows(tmp_path: Path) -> None:
    result = run_plan(SHORT, tmp_path / "latency.json", lambda _: None)
    runs = result["details"]["apps"]["debs2015.frequent_routes"]
    compared = result["details"]["judged"]["rates"]["debs2015.frequent_routes"].values()
    for side in (OURS, OWPOA, PER_CHAIN):
        assert [one["rate"] for one in runs[side]] == [80.0, 160.0]
        assert all(20.0 < one["p50"] <= one["p99"] for one in runs[side]), "a row crosses a link of 20 ms at least"
        assert all(len(one["runs"]) == 2 for one in runs[side] if one["rate"] in compared)
    sides = [f"latency_vs_{side}" for side in (OWPOA, PER_CHAIN)]
    assert set(result["ratios"]) == {f"{side}{level}" for side in sides for level in ("", "_medium", "_high")}
    assert set(result["details"]["goals"]) == {name for name in result["ratios"] if PER_CHAIN not in name}
    assert all(Path(figure).is_file() for figure in result["figures"])


def run(rate: float, p50: float, p99: float, halves: tuple[float, ...] = ()) -> dict[str, Any]:
    return {"rate": rate, "p50": p50, "p90": p99, "p99": p99, "p50_of_halves": list(halves or (p50, p50))}


def test_high_is_the_highest_rate_that_both_hold_and_medium_at_most_half_of_it() -> None:
    runs = {
        OURS: [run(100, 50, 80), run(400, 60, 100), run(1_000, 70, 120), run(2_000, 80, 200)],
        OWPOA: [run(100, 50, 90), run(400, 60, 200), run(1_000, 90, 360), run(2_000, 3_000, 5_000)],
        STRUCTURED: [run(rate, 500, 1_200) for rate in (100, 400, 1_000, 2_000)],
    }
    told = judged({"app": runs}, {"app": levels_of(runs)})
    assert told["rates"] == {"app": {"medium": 400, "high": 1_000}}
    ratios = ratios_of(told)
    assert (ratios["latency_vs_owpoa_medium"], ratios["latency_vs_owpoa_high"]) == (2.0, 3.0)
    assert (ratios["latency_vs_owpoa"], ratios["latency_vs_structured"]) == (2.0, 10.0)


def test_a_rate_is_not_held_if_rows_come_ever_later() -> None:
    idle = run(100, 50, 80)
    assert is_held(idle, run(1_000, 300, 900, (290.0, 310.0)))
    assert not is_held(idle, run(1_000, 500, 900, (200.0, 800.0)))
    assert not is_held(idle, run(1_000, 1_100, 1_200))


def test_a_side_is_not_warm_while_rows_that_waited_for_its_workers_come_through() -> None:
    assert is_settling(run(80, 6_287, 22_328, (6_805.0, 286.0)))
    assert not is_settling(run(80, 280, 350, (300.0, 250.0)))
    assert not is_settling(run(80, 500, 900, (200.0, 800.0))), "that one does not keep up"


def test_a_rate_that_was_measured_several_times_has_the_medians() -> None:
    found = with_another(with_another(run(80, 50, 900), run(80, 60, 100)), run(80, 55, 120))
    assert (found["rate"], found["p50"], found["p99"]) == (80, 55, 120)
    assert [one["p99"] for one in found["runs"]] == [900, 100, 120]


def test_the_way_to_the_centre_and_back_is_the_mean_over_all_peers() -> None:
    """Peers are in pairs: 20 ms within the zone of the centre, 40, 60 and 50 ms to the other three."""
    assert links_ms() == pytest.approx((0 + 20 + 2 * (40 + 60 + 50)) / 8)
