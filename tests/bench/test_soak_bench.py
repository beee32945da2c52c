"""A short soak without Spark: nodes join and leave under three apps, and nothing is lost; and how memory is judged."""

from pathlib import Path

import pytest

from bench.soak import KINDS, Plan, run_plan
from bench.soak_memory import growth

SHORT = Plan(minutes=0.2, change_s=4.0, rate=100, apps=len(KINDS), apps_max=2 * len(KINDS), processes=1, spark=False)


@pytest.mark.slow
def test_no_row_is_lost_or_doubled_while_nodes_join_and_leave(tmp_path: Path) -> None:
    result = run_plan(SHORT, tmp_path / "soak.json", lambda _: None)
    details = result["details"]
    assert details["changes"], "on a busy machine there is time for one, else for two"
    assert sum(one.get("moved", 0) for one in details["changes"]) > 0, "somebody left who had something to move"
    assert result["ratios"]["nodes_left_as_wanted"] == 1.0, details["changes"]
    assert result["ratios"]["ledgers_balanced"] == 1.0, details["results"]
    assert result["ratios"]["outputs_equal_to_oracle"] == 1.0, details["results"]
    assert details["readings"] == sum(one["rows_in"] for one in details["results"])
    assert all(Path(figure).is_file() for figure in result["figures"])


def test_memory_that_only_swings_does_not_grow() -> None:
    """A node that has joined before another has left is there for a moment."""
    looks = {"at_s": [float(at) for at in range(90)], "mb": {"all": [100.0 + 20 * (at % 6 == 0) for at in range(90)]}}
    assert growth(looks)["all"] == {"median_mb": 100.0, "mb_per_hour": 0.0, "growth": 0.0}


def test_memory_that_grows_is_told_and_the_warm_up_is_not() -> None:
    at_s = [60.0 * minute for minute in range(61)]
    warm = [200.0 + 10 * minute for minute in range(20)]
    leak = [400.0 + minute for minute in range(41)]
    assert growth({"at_s": at_s, "mb": {"all": [*warm, *([400.0] * 41)]}})["all"]["growth"] == 0.0
    found = growth({"at_s": at_s, "mb": {"all": [*warm, *leak]}})["all"]
    assert found["mb_per_hour"] == 60.0
    assert found["growth"] == pytest.approx(0.095, abs=0.001)
