"""The demo runs, explains itself, and loses nothing."""

from pathlib import Path

import orjson
import pytest

from headwater.console.demo_flow import city_flow
from headwater.dataflow.compile import compile_flow
from tests.console.flows import Command, Start


def test_the_demo_ends_by_itself_with_every_reading_accounted_for(headwater: Command, tmp_path: Path) -> None:
    result = headwater("demo", "--files", tmp_path, "--no-spark", "--for", "2s", "--rate", "3000", "--json")
    told = orjson.loads(result.stdout)
    assert (result.exit_code, told["state"], told["rows_in"]) == (0, "finished", 6000)
    assert told["ledger"]["balanced"]
    assert told["ledger"]["waiting"] == 0
    assert len(told["cities"]) == 7
    rows_out = {one["name"]: one["rows_out"] for one in told["operators"]}
    assert (rows_out["alerts"], rows_out["dead-letters"]) == (told["alerts"], told["dead_letters"])
    usable = sum(city["readings"] for city in told["cities"])
    assert usable + told["dead_letters"] == 6000


def test_the_story_names_cities_alerts_and_the_verdict(headwater: Command, tmp_path: Path) -> None:
    told = headwater("demo", "--files", tmp_path, "--no-spark", "--for", "1s", "--rate", "8000").stdout
    for words in ("Singapore", "foulest air", "alerts.csv", "Every one of 8,000 readings is accounted for."):
        assert words in told.replace("\n", " ") or words in told.replace("\n", ""), words


def test_the_flow_of_the_demo_has_all_that_it_is_to_show() -> None:
    graph = compile_flow(city_flow(Path()))
    assert {chain.parallelism for chain in graph.chains} == {1, 2}
    assert {route.port for route in graph.routes} == {"out", "good", "bad", "errors"}


@pytest.mark.spark
def test_on_spark_a_worker_is_killed_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    process = start("demo", "--files", tmp_path, "--for", "6s", "--rate", "1000", "--json")
    out, err = process.communicate(timeout=120)
    told = orjson.loads(out.splitlines()[-1])
    assert process.returncode == 0, err
    assert (told["state"], told["rows_in"], told["workers_killed"]) == ("finished", 6000, 1)
    assert told["node"]["workers_lost"] >= 1
    assert told["ledger"]["balanced"]
    assert told["ledger"]["waiting"] == 0
    assert "kill -9" in err
