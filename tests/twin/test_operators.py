"""Operators other than windows, each on stock Structured Streaming."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.connectors import read, to
from headwater.dataflow.stream import Stream, Vertex, flow
from headwater.operators.processors.processing import Process
from tests.twin.conftest import RunTwin
from tests.twin.readings import seconds, stream_of

pytestmark = pytest.mark.spark

LARGE = (1 << 62) + 1  # no float holds it
KEYS = (None, "a.b", "ü")
ROWS: list[dict[str, Any]] = [
    {"`k.ey`": KEYS[number % 3], "x": None if number == 4 else LARGE + number} for number in range(9)
]


def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add a column."""
    return batch.append_column("half", pc.shift_right(batch.column("x"), 1))


def picky(row: dict[str, Any]) -> dict[str, Any]:
    """Take all rows but one."""
    if row["x"] == LARGE + 3:
        raise ValueError("not this one")
    return row


def numbered(row: dict[str, Any], seen: int | None) -> tuple[dict[str, Any], int]:
    """Number the rows of a key."""
    number = (seen or 0) + 1
    if row["x"] == LARGE + 6:
        raise ValueError("not the sixth")
    return {**row, "number": number}, number


def is_even(batch: pa.RecordBatch) -> pa.Array:
    """Tell even numbers from others."""
    return pc.equal(pc.bit_wise_and(batch.column("x").fill_null(1), 1), 0)


def with_digit(frame: DataFrame) -> DataFrame:
    """Compute with Spark SQL, which does not care how a name is written."""
    return frame.selectExpr("*", "X % 10 AS digit")


def test_functions_see_the_rows_as_on_headwater(run_twin: RunTwin) -> None:
    """Odd names, nulls beside large numbers, dead letters, branches: without a schema declared anywhere."""
    rows = read.iterable(ROWS)
    even, odd = rows.split(is_even, into=("even", "odd"))
    made = even.union(odd).map(halved).filter(lambda batch: pc.true_unless_null(batch.column("x")))
    made = made.map(picky, name="picky", on_error="dead-letter")
    counted = rows.transform(with_digit).key_by("`k.ey`").stateful(numbered, name="counted", on_error="dead-letter")
    out, states, letters = (to.memory() for _ in range(3))
    status = run_twin(
        flow(
            "functions",
            made.select("half", key="`k.ey`").sink(out),
            counted.sink(states),
            made.errors.union(counted.errors).sink(letters),
        ),
        file_rows=3,
    )
    kept = [row for number, row in enumerate(ROWS) if number not in (3, 4)]
    halves = sorted(((row["half"], row["key"]) for row in out.rows()), key=repr)
    assert halves == [(row["x"] // 2, row["`k.ey`"]) for row in kept]
    for key in KEYS:
        of_key = [row["x"] for number, row in enumerate(ROWS) if row["`k.ey`"] == key and number != 6]
        found = [row for row in states.rows() if row["`k.ey`"] == key]
        assert [row["x"] for row in found] == of_key
        assert [row["number"] for row in found] == list(range(1, len(of_key) + 1))
        assert [row["digit"] for row in found] == [None if x is None else x % 10 for x in of_key]
    told = sorted((letter["operator"], letter["error"]) for letter in letters.rows())
    assert told == [("counted", "ValueError: not the sixth"), ("picky", "ValueError: not this one")]
    assert status.rows_in == {"iterable": len(ROWS)}


class Alarm(StatefulProcessor):
    """Counts rows, and tells how many there were when five seconds have passed since the last."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._handle = handle
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Count the rows."""
        known = self._count.get()
        count, last = (0 if known is None else known[0]), 0
        for frame in rows:
            count += len(frame)
            last = max(last, int(frame["ts"].max().timestamp() * 1_000))
        self._count.update((count,))
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(last + 5_000)
        yield pd.DataFrame({"key": [key[0]], "count": [count], "fired": [False]})

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Tell how many there were."""
        known = self._count.get()
        assert known is not None
        yield pd.DataFrame({"key": [key[0]], "count": [known[0]], "fired": [True]})

    def close(self) -> None:
        """Nothing is open."""


ALARMS = pa.schema([("key", pa.string()), ("count", pa.int64()), ("fired", pa.bool_())])


def test_joins_duplicates_and_processors_are_sparks_own(run_twin: RunTwin) -> None:
    left = stream_of(
        [("a", 1, 1.0), ("b", 2, None)], [(None, 3, math.nan), ("a", 12, 1.5)], [("a", 40, 1.5)], name="left"
    ).with_watermark("ts", "2 seconds")
    right = stream_of([("a", 2, 7.0), ("c", 2, None), (None, 3, 1.0)], [("a", 13, 8.0)], name="right").with_watermark(
        "ts", "2 seconds"
    )
    near, first, alarms = (to.memory() for _ in range(3))
    process = Process(key_columns=("key",), processor=Alarm(), schema=ALARMS, time_mode="eventtime", event_time="ts")
    run_twin(
        flow(
            "stateful",
            left.join(right, "key", between=("-1 second", "2 seconds"), event_time="ts", how="full").sink(near),
            left.dedup("key", event_time="ts", within="5 seconds").sink(first),
            Stream(Vertex(process, (left.key_by("key"),))).sink(alarms),
        ),
        exact_lateness=True,
    )
    found = [
        (row["key"], *(None if row[name] is None else seconds(row[name]) for name in ("ts", "ts_right")))
        for row in near.rows()
    ]
    alone = [("b", 2, None), (None, 3, None), ("a", 40, None), ("c", None, 2), (None, None, 3)]
    assert sorted(found, key=repr) == sorted([("a", 1, 2), ("a", 12, 13), *alone], key=repr), "null equals nothing"
    assert [(row["key"], seconds(row["ts"])) for row in first.rows()] == [("a", 1), ("b", 2), (None, 3), ("a", 40)]
    told = [(row["count"], row["fired"]) for row in alarms.rows() if row["key"] == "a"]
    assert told == [(1, False), (2, False), (3, False), (3, True)]
