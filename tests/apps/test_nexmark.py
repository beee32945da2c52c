"""Nexmark's queries beside plain Python written from their specification, on both engines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from apps.nexmark.q5 import HotItems
from apps.nexmark.q6 import SellingPrice
from apps.nexmark.q7 import HighestBid
from apps.nexmark.q8 import NewUsers
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of
from tests.apps.nexmark_oracle import highest_bids, hot_items, micros, new_users, selling_prices

SLOW: dict[str, Any] = {"event_rate": 50}  # so that few events span many windows
# Within a group events come as if thrown in the air, up to 16 s late: some are too late for their windows.
SHUFFLED: dict[str, Any] = {"event_rate": 50, "out_of_order_group": 800}
# Up to 3 s late, less than is waited for: what a join finds late else depends on which of its inputs is ahead.
STIRRED: dict[str, Any] = {"event_rate": 50, "out_of_order_group": 150}
HOT: dict[str, Any] = {"event_rate": 50, "hot_auction_ratio": 100}  # as in the Falcon paper


def items(rows: Sequence[Row]) -> list[Any]:
    return sorted((micros(row["start"]), row["auction"], row["num"]) for row in rows)


def bids(rows: Sequence[Row]) -> list[Any]:
    return sorted((micros(row["dateTime"]), row["price"], row["auction"], row["bidder"]) for row in rows)


def sales(rows: Sequence[Row]) -> list[Any]:
    return sorted((row["seller"], micros(row["closed"]), row["auction"], row["price"], row["average"]) for row in rows)


def people(rows: Sequence[Row]) -> list[Any]:
    return sorted((micros(row["start"]), row["id"], row["name"]) for row in rows)


Case = tuple[hw.App, Callable[[Sequence[Row]], list[Any]], Callable[[Sequence[Row]], list[Any]]]
CASES: dict[str, Case] = {
    "q5": (HotItems(**SLOW), items, lambda events: hot_items(events, 10, 2)),
    "q5 shuffled": (HotItems(**SHUFFLED, parallelism=3), items, lambda events: hot_items(events, 10, 2)),
    "q5 uneven": (HotItems(**HOT, size="5 seconds", slide="3 seconds"), items, lambda events: hot_items(events, 5, 3)),
    "q6": (SellingPrice(**SLOW), sales, selling_prices),
    "q6 shuffled": (SellingPrice(**SHUFFLED, parallelism=3), sales, selling_prices),
    "q7": (HighestBid(**SLOW), bids, lambda events: highest_bids(events, 10)),
    "q7 shuffled": (HighestBid(**SHUFFLED, size="3 seconds"), bids, lambda events: highest_bids(events, 3)),
    "q8": (NewUsers(**SLOW), people, lambda events: new_users(events, 10, 10)),
    "q8 stirred": (
        NewUsers(**STIRRED, size="6 seconds", slide="2 seconds", parallelism=3),
        people,
        lambda events: new_users(events, 6, 2),
    ),
}


@pytest.mark.parametrize("turns", ["all", "7"])
@pytest.mark.parametrize("case", CASES)
def test_a_query_gives_what_its_specification_says(case: str, turns: str) -> None:
    app, told, oracle = CASES[case]
    count = 3_000 if turns == "all" else 1_500
    found = results_of(app, count, consumption=Consumption.parse(turns))["results"]
    expected = oracle(made_rows(app, count))
    assert told(found) == expected
    assert len(expected) >= 3


@pytest.mark.parametrize("app", [HotItems(), SellingPrice(), HighestBid(), NewUsers()], ids=lambda app: app.name)
def test_events_that_lack_something_are_passed_over(app: hw.App) -> None:
    """From a broker anything may come: here each of the first 300 events comes without any one of its fields."""
    whole = made_rows(app, 300)
    lacking = [{**row, name: None} for row in whole for name, value in row.items() if value is not None]
    out = hw.to.memory()
    hw.run(app.flow(hw.read.iterable(lacking, schema=app.schema), lambda name: out), spark=False)
    assert all(value is not None for row in out.rows() for name, value in row.items() if name not in ("extra", "name"))


@pytest.mark.spark
@pytest.mark.parametrize("case", ["q5", "q6", "q7", "q8"])
def test_the_twin_gives_the_same(case: str, spark_node: Node, tmp_path: Path) -> None:
    app, told, oracle = CASES[case]
    assert isinstance(spark_node.pool, SparkPool)
    found = twin_results_of(app, 1_000, spark_node.pool.session, tmp_path)["results"]
    assert told(found) == oracle(made_rows(app, 1_000))
