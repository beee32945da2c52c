"""The operator benchmark in a short form: shapes and counts, never times; and that both sides do the same work."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bench.operator_cases import CASES, Case, steps, watermarks
from bench.operators import Ours, Plan, Routing, measure, plan_for, run_plan

TINY = Plan(rows=50, keys=20, batches=4, rounds=2, key_counts=(1, 10), key_batches=8, spark=False)


def test_a_run_returns_a_ratio_for_every_operator_and_writes_them(tmp_path: Path) -> None:
    """What is returned and what is on disk are the same."""
    told: list[str] = []
    result = run_plan(TINY, tmp_path / "out" / "operators.json", told.append)
    assert json.loads((tmp_path / "out" / "operators.json").read_text()) == json.loads(json.dumps(result))
    assert result["ratios"].keys() == {f"{case.name}_vs_bare" for case in CASES}
    assert all(ratio > 0 for ratio in result["ratios"].values())
    assert result["details"]["goals"].keys() == result["details"]["reached"].keys() == result["ratios"].keys()
    assert set(result["details"]["keys_cost"]["tumbling"]) == {"1", "10"}
    assert result["details"]["operators"]["tumbling"]["state_bytes_per_key"] > 0
    assert all(Path(figure).stat().st_size for figure in result["figures"])
    assert told


def test_the_short_form_is_shorter() -> None:
    """On the same batches."""
    quick, full = plan_for(True), plan_for(False)
    assert (quick.rows, quick.keys) == (full.rows, full.keys) == (1_000, 1_000)
    assert quick.rounds < full.rounds


@pytest.mark.parametrize("case", [case for case in CASES if case.flow is not None], ids=lambda case: case.name)
def test_both_sides_make_the_same_number_of_rows(case: Case, tmp_path: Path) -> None:
    """A bare function that does less would be no measure."""
    made = steps(40, 100, 30, case.inputs)
    ours, bare = Ours(case, tmp_path), case.bare()
    count = 0
    for (source, batch), watermark_us in zip(made, watermarks(made), strict=True):
        ours(source, batch, watermark_us)
        told = bare(source, batch)
        count += sum(part.num_rows for part in told) if isinstance(told, list) else told.num_rows
    ours.store.close()
    assert ours.made_rows == count > 0


def test_key_by_is_measured_as_routing(tmp_path: Path) -> None:
    """It has no state and no chain of its own."""
    figures = measure(next(case for case in CASES if case.name == "key_by"), TINY, tmp_path)
    assert "state_bytes" not in figures
    Routing()(0, pa.record_batch({"sensor": ["a", "b"]}), 0)
