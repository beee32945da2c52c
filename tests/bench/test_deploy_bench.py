"""A short deployment benchmark without Spark, on real nodes with emulated links; and how its figures are judged."""

from pathlib import Path

import pytest

from bench.deploy import GOALS, STARTER_SET, Plan, run_plan
from bench.edge.users import Deployed, deployed
from bench.edge.watched import Note
from tests.bench.arrivals import arrival

SHORT = Plan(counts=(1, 8), singles=1, trial=4, trial_rate=8.0, hold_s=1.0, rows_per_s=20.0, processes=1, spark=False)


@pytest.mark.slow
def test_stewards_and_the_master_deploy_the_same_apps(tmp_path: Path) -> None:
    result = run_plan(SHORT, tmp_path / "deploy.json", lambda _: None)
    assert set(result["ratios"]) == set(GOALS)
    assert all(ratio > 0 for ratio in result["ratios"].values())
    for side in ("ours", "central"):
        apps = result["details"][side]["all_apps"]
        assert sorted(one["app"].rpartition("-")[0] for one in apps) == ["app"] * 8
        assert all(0 < one["queue_ms"] <= one["deploy_ms"] for one in apps)
    assert result["details"]["ours"]["query_latency_ms"]["8"]["rows"] > 0
    assert [Path(figure).is_file() for figure in result["figures"]] == [True]


def test_the_whole_starter_set_is_deployed() -> None:
    assert len(STARTER_SET) == 8


def test_an_app_runs_when_the_last_of_it_is_open_and_queued_until_somebody_took_it_up() -> None:
    """Another app's notes, and the same instance opened again later, change nothing."""
    wanted = arrival("a@1", opens=3, due_us=1_000_000)
    notes = [
        Note(1_040_000, "a@1", "taken up"),
        Note(1_050_000, "b@2", "taken up"),
        Note(1_060_000, "a@1", "taken up"),
        Note(1_100_000, "a@1", "open", 0),
        Note(1_200_000, "a@1", "open", -1),
        Note(1_300_000, "b@2", "open", 1),
    ]
    assert deployed([wanted], notes) == [None]
    notes += [Note(1_400_000, "a@1", "open", 1), Note(1_900_000, "a@1", "open", 0)]
    assert deployed([wanted], notes) == [Deployed(wanted.wanted.text.app, 40.0, 400.0)]
