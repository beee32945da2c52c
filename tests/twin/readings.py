"""Rows with event times, written briefly."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headwater.connectors import read
from headwater.dataflow.stream import Stream

START = datetime(2026, 3, 29, tzinfo=UTC)

READINGS = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us", "Europe/Berlin")), ("value", pa.float64())])


def at(second: float) -> datetime:
    """Return an instant, in seconds after the first."""
    return START + timedelta(seconds=second)


def seconds(instant: datetime) -> float:
    """Return how many seconds after the first an instant is."""
    return (instant - START).total_seconds()


def readings(rows: Iterable[tuple[str | None, float | None, float | None]]) -> pa.RecordBatch:
    """Return a batch of (key, second, value)."""
    made = [{"key": key, "ts": None if second is None else at(second), "value": value} for key, second, value in rows]
    return pa.RecordBatch.from_pylist(made, schema=READINGS)


def stream_of(*batches: Sequence[tuple[str | None, float | None, float | None]], name: str | None = None) -> Stream:
    """Return a stream whose source gives these rows, a batch at a time."""
    return read.iterable([readings(rows) for rows in batches], schema=READINGS, name=name)


def windows(rows: Iterable[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Return rows as (start, end, columns ...), in seconds."""
    return [
        (seconds(row["window"]["start"]), seconds(row["window"]["end"]), *(row[name] for name in columns))
        for row in rows
    ]
