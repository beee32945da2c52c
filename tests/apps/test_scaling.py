"""The four-stage set beside plain Python, on both engines, with one instance and with several."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from apps.scaling.remove_duplicates import RemoveDuplicates
from apps.scaling.top_k import TopK
from apps.scaling.word_count import WordCount
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of

ROWS = 2_000


def different_messages(rows: Sequence[Row]) -> list[Any]:
    """Each message of each sensor once."""
    return sorted({(row["sensor"], row["number"], row["at"], row["celsius"]) for row in rows})


def hottest(rows: Sequence[Row]) -> list[Any]:
    """The ten hottest readings of each city, without those that no weather explains."""
    by_city = defaultdict(list)
    for row in rows:
        if row["celsius"] < 60:
            by_city[row["city"]].append(row["celsius"])
    return sorted((city, sorted(readings, reverse=True)[:10]) for city, readings in by_city.items())


def counts(rows: Sequence[Row]) -> list[Any]:
    """Every count from 1 to the last, of each word."""
    found = Counter(word for row in rows for word in row["line"].split())
    return sorted((word, count) for word, last in found.items() for count in range(1, last + 1))


def messages(rows: Sequence[Row]) -> list[Any]:
    """What passed, in order of sensor and number; every id says both."""
    assert all(row["id"] == f"{row['sensor']}-{row['number']}" for row in rows)
    return sorted((row["sensor"], row["number"], row["at"], row["celsius"]) for row in rows)


def last_rankings(rows: Sequence[Row]) -> list[Any]:
    """The last ranking of each city: a new one begins with each rank 1."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["rank"] == 1:
            found[row["city"]] = []
        found[row["city"]].append(row["celsius"])
        assert row["rank"] == len(found[row["city"]])
    return sorted(found.items())


def words(rows: Sequence[Row]) -> list[Any]:
    """Words with their counts."""
    return sorted((row["word"], row["count"]) for row in rows)


SET = [(RemoveDuplicates, different_messages, messages), (TopK, hottest, last_rankings), (WordCount, counts, words)]
whole_set = pytest.mark.parametrize(("kind", "oracle", "shape"), SET, ids=lambda one: getattr(one, "name", ""))


@pytest.mark.parametrize("instances", [1, 2, 5])
@whole_set
def test_any_number_of_instances_gives_what_plain_python_gives(
    kind: Any, oracle: Any, shape: Any, instances: int
) -> None:
    app = kind(parallelism=instances)
    assert shape(results_of(app, ROWS)["results"]) == oracle(made_rows(app, ROWS))


@whole_set
def test_turns_of_a_few_rows_change_nothing(kind: Any, oracle: Any, shape: Any) -> None:
    found = results_of(kind(), 300, consumption=Consumption.parse("7"))
    assert shape(found["results"]) == oracle(made_rows(kind(), 300))


@whole_set
def test_there_are_four_stages(kind: Any, oracle: Any, shape: Any) -> None:
    app = kind()
    graph = hw.compile_flow(app.flow(app.source(), lambda name: hw.to.nothing()))
    assert {chain.stage for chain in graph.chains} == {1, 2}, "between the source and the sink"


@pytest.mark.spark
@whole_set
def test_the_twin_gives_the_same(kind: Any, oracle: Any, shape: Any, spark_node: Node, tmp_path: Path) -> None:
    assert isinstance(spark_node.pool, SparkPool)
    found = twin_results_of(kind(), 300, spark_node.pool.session, tmp_path)
    assert shape(found["results"]) == oracle(made_rows(kind(), 300))


def test_a_fifth_of_the_messages_is_sent_again() -> None:
    rows = made_rows(RemoveDuplicates(), 20_000)
    times = [row["at"] for row in rows]
    assert 0.15 < 1 - len(set(times)) / len(rows) < 0.2, "some repeat one that was itself never sent first"
    assert max((later - now).total_seconds() for later, now in pairwise(times)) <= 1.02


def test_one_reading_in_a_hundred_is_a_fault() -> None:
    rows = made_rows(TopK(), 20_000)
    assert 0.007 < sum(row["celsius"] > 100 for row in rows) / len(rows) < 0.013
    assert {row["city"] for row in rows} == {"Bern", "Cairo", "Lagos", "Lima", "Oslo", "Pune", "Turin"}
