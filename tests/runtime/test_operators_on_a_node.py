"""Every operator with state on a node, on threads and on Spark: three instances give what one gives."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import headwater as hw
from headwater import functions as F
from headwater.runtime.node import Node

PATIENCE_S = 120.0
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = [
    {"at": START + dt.timedelta(seconds=n - n % 5), "key": f"k{n * 7 % 11}", "value": n / 4, "n": n} for n in range(240)
]
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("key", pa.string()), ("value", pa.float64()), ("n", pa.int64())]
)

Build = Callable[[hw.Stream, int], hw.Stream]


class Alarms(StatefulProcessor):
    """Counts the rows of a key, and tells the count ten seconds of event time after each row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep the count."""
        self.handle = handle
        self.count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Count, and set a timer."""
        for frame in rows:
            kept = self.count.get()
            self.count.update(((0 if kept is None else kept[0]) + len(frame),))
            for at in frame["at"]:
                self.handle.registerTimer(int(at.timestamp() * 1000) + 10_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Tell when."""
        yield pd.DataFrame({"key": [key[0]], "ms": [expiredTimerInfo.getExpiryTimeInMs()]})

    def close(self) -> None:
        """Nothing is open."""


def larger(so_far: hw.Row, row: hw.Row) -> hw.Row:
    """The row with the larger value modulo 7."""
    return row if row["value"] % 7 > so_far["value"] % 7 else so_far


def windowed(window: Any, aggregate: Any, **how: Any) -> Build:
    """Return windows with an aggregate."""
    return lambda rows, many: rows.key_by("key").window(window, **how).agg(aggregate, parallelism=many)


def paired(rows: hw.Stream, many: int) -> hw.Stream:
    """A stream joined with itself."""
    other = rows.select("key", "at", m="n")
    return rows.join(other, "key", window=F.window("at", "10 seconds"), how="full", parallelism=many)


CASES: dict[str, Build] = {
    "sliding": windowed(F.window("at", "20 seconds", "5 seconds"), F.sum("value")),
    "lateness": windowed(F.window("at", "20 seconds"), F.max("n"), lateness="30 seconds"),
    "session": windowed(F.session_window("at", "3 seconds"), F.count()),
    "count": windowed(F.count_window(4, 2), F.avg("value")),
    "join": paired,
    "dedup": lambda rows, many: rows.dedup("key", parallelism=many).select("key"),
    "reduce": lambda rows, many: rows.key_by("key").reduce(larger, parallelism=many),
    "process": lambda rows, many: rows.key_by("key").process(
        Alarms(), "key string, ms bigint", time_mode="EventTime", parallelism=many
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_three_instances_give_what_one_gives(node: Node, name: str) -> None:
    """The rows of every key; a window that fires more than once may do so after other rows."""
    answers = []
    for many in (1, 3):
        sink = hw.to.memory()
        rows = hw.read.iterable(ROWS, schema=SCHEMA).with_watermark("at", "6 seconds")
        app = node.deploy(hw.flow(f"{name}-{many}", CASES[name](rows, many).sink(sink)))
        assert node.wait(app, PATIENCE_S)
        assert app.error is None
        assert node.ledger(app).balanced
        node.remove(app.name)
        told = [row for row in sink.rows() if row.get("firing") != "late"]
        answers.append(sorted(str(sorted(row.items())) for row in told))
    assert answers[0] == answers[1]
    assert answers[0]
