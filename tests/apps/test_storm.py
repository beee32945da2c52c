"""Storm's starter set beside plain Python written from Storm's documentation, on both engines."""

import datetime as dt
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from apps.storm.exclamation import Exclamation
from apps.storm.join_bolt import JoinBolt
from apps.storm.lambdas import Lambdas
from apps.storm.prefix import Prefix
from apps.storm.single_join import SingleJoin
from apps.storm.sliding_tuple_ts import SlidingTupleTs
from apps.storm.sliding_window import SlidingWindow
from apps.storm.word_count import WordCount
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of

Answer = dict[str, list[Any]]
ROWS = 1_500


def exclaimed(rows: Sequence[Row]) -> Answer:
    """Every word with six marks, in order."""
    return {"results": [row["line"] + 6 * "!" for row in rows]}


def greeted(rows: Sequence[Row]) -> Answer:
    """Every word with a text in front."""
    return {"results": [f"Hello {row['line']}" for row in rows]}


def first_parts(rows: Sequence[Row]) -> Answer:
    """The first part of each id, in a sentence, with the tag."""
    return {"results": [(f"Hello lambda:{row['line'].split('-')[0]}:so cool!", 999) for row in rows]}


def pairs_in_windows(rows: Sequence[Row]) -> Answer:
    """Pairs of gender and age with one id in one stretch of ten seconds."""
    genders = [row for row in rows if row["kind"] == "gender"]
    ages = {(row["id"], row["ts"].timestamp() // 10): row["age"] for row in rows if row["kind"] == "age"}
    return {
        "results": sorted(
            (row["id"], row["gender"], ages[row["id"], row["ts"].timestamp() // 10])
            for row in genders
            if (row["id"], row["ts"].timestamp() // 10) in ages
        )
    }


def pairs_in_time(rows: Sequence[Row]) -> Answer:
    """Pairs of gender and age with one id, at most thirty seconds apart; and those who have no partner."""
    waiting: dict[int, Row] = {}
    joined = []
    expired = []
    for row in rows:
        partner = waiting.pop(row["id"], None)
        if partner is None:
            waiting[row["id"]] = row
        elif row["ts"] - partner["ts"] <= dt.timedelta(seconds=30):
            joined.append((row["id"], partner["gender"], row["age"]))
        else:
            expired += [partner, row]
    expired += waiting.values()
    alone = [(row["id"], row["gender"] or "", row["age"] or 0) for row in expired]
    return {"joined": sorted(joined), "expired": sorted(alone)}


def sums_by_time(rows: Sequence[Row]) -> Answer:
    """The sum of each five seconds that begin at a multiple of three."""
    sums: dict[int, int] = defaultdict(int)
    for row in rows:
        at = row["ts"].timestamp()
        last = int(at // 3) * 3
        for start in (last, last - 3):
            if start <= at < start + 5:
                sums[start] += row["value"]
    return {"results": sorted(sums.items())}


def means_of_sums(rows: Sequence[Row]) -> Answer:
    """The sums of the last thirty values after every ten, and the mean of every three sums."""
    values = [row["value"] for row in rows]
    sums = [sum(values[max(0, end - 30) : end]) for end in range(10, len(values) + 1, 10)]
    return {"results": [sum(sums[at : at + 3]) / 3 for at in range(0, len(sums) - 2, 3)]}


def counted(rows: Sequence[Row]) -> Answer:
    """Every count from 1 to the last, of each word in order."""
    found = Counter(word for row in rows for word in row["line"].split())
    return {"results": [(word, list(range(1, count + 1))) for word, count in sorted(found.items())]}


def lines(rows: Sequence[Row]) -> list[str]:
    """Rows of text as they come."""
    return [row["line"] for row in rows]


def people(rows: Sequence[Row]) -> list[Any]:
    """Joined rows in order of id, nulls as the oracle writes them."""
    return sorted((row["id"], row["gender"] or "", row["age"] or 0) for row in rows)


def counts_by_word(rows: Sequence[Row]) -> list[Any]:
    """The counts of each word, in order of arrival."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["word"]].append(row["count"])
    return sorted(found.items())


SET: list[tuple[hw.App, Callable[[Sequence[Row]], Answer], Callable[[Sequence[Row]], list[Any]]]] = [
    (Exclamation(), exclaimed, lines),
    (Prefix(), greeted, lines),
    (Lambdas(), first_parts, lambda rows: [(row["text"], row["tag"]) for row in rows]),
    (JoinBolt(), pairs_in_windows, people),
    (SingleJoin(), pairs_in_time, people),
    (SlidingTupleTs(), sums_by_time, lambda rows: [(row["window"]["start"].timestamp(), row["sum"]) for row in rows]),
    (SlidingWindow(), means_of_sums, lambda rows: [row["avg"] for row in rows]),
    (WordCount(), counted, counts_by_word),
]
whole_set = pytest.mark.parametrize(("app", "oracle", "shape"), SET, ids=lambda one: getattr(one, "name", ""))


@whole_set
def test_each_gives_what_plain_python_gives(app: hw.App, oracle: Any, shape: Any) -> None:
    found = {name: shape(rows) for name, rows in results_of(app, ROWS).items()}
    assert found == oracle(made_rows(app, ROWS))


@whole_set
def test_turns_of_a_few_rows_change_nothing(app: hw.App, oracle: Any, shape: Any) -> None:
    found = results_of(app, 300, consumption=Consumption.parse("7"))
    assert {name: shape(rows) for name, rows in found.items()} == oracle(made_rows(app, 300))


@pytest.mark.parametrize(
    ("app", "oracle", "shape"),
    [
        (JoinBolt(parallelism=3), pairs_in_windows, people),
        (SingleJoin(parallelism=3), pairs_in_time, people),
        (WordCount(parallelism=3), counted, counts_by_word),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_several_instances_share_the_keys(app: hw.App, oracle: Any, shape: Any) -> None:
    found = {name: shape(rows) for name, rows in results_of(app, ROWS).items()}
    assert found == oracle(made_rows(app, ROWS))


@pytest.mark.spark
@whole_set
def test_the_twin_gives_the_same(app: hw.App, oracle: Any, shape: Any, spark_node: Node, tmp_path: Path) -> None:
    assert isinstance(spark_node.pool, SparkPool)
    found = twin_results_of(app, 300, spark_node.pool.session, tmp_path)
    expected = oracle(made_rows(app, 300))
    assert {name: sorted(shape(rows)) for name, rows in found.items()} == {
        name: sorted(rows) for name, rows in expected.items()
    }


def test_people_are_told_of_as_in_storm() -> None:
    """Ten genders in order of id, ten ages in the opposite order; a few ids are misread and stay alone."""
    rows = made_rows(JoinBolt(), 20_000)
    begin = [row for row in rows if row["id"] >= 0][:15]
    assert [(row["kind"], row["gender"] or row["age"]) for row in begin[:2]] == [
        ("gender", "male"),
        ("gender", "female"),
    ]
    assert [row["id"] for row in begin[:10]] == sorted(row["id"] for row in begin[:10])
    assert all(row["age"] == row["id"] % 10 + 20 for row in rows if row["kind"] == "age" and row["id"] >= 0)
    assert 0.015 < sum(row["id"] < 0 for row in rows) / len(rows) < 0.025


def test_random_ids_are_uuids_of_version_4() -> None:
    made = lines(made_rows(Lambdas(), 500))
    assert len(set(made)) == 500
    assert {uuid.UUID(line).version for line in made} == {4}
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", line) for line in made)


def test_numbers_are_below_a_thousand_and_some_come_late() -> None:
    rows = made_rows(SlidingTupleTs(), 20_000)
    mean = sum(row["value"] for row in rows) / len(rows)
    late = sum(after["ts"] < before["ts"] for before, after in pairwise(rows))
    assert 485 < mean < 515
    assert 0.08 < late / len(rows) < 0.12
