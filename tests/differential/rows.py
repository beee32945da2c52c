"""Rows that try the engines: out of order, late, null, NaN, unicode, far in time; and how answers are compared."""

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]
UTC = dt.UTC
START = dt.datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # half an hour before Europe's clocks go forward
FAR = (
    dt.datetime(1, 1, 2, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    dt.datetime(9990, 12, 31, 23, 59, 59, tzinfo=UTC),
)
KEYS = ("a", "b", "", "Zürich", "日本", "😀", "e\u0301", "é", None)

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("key", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("value", pa.float64()),
        ("count", pa.int32()),
        ("text", pa.string()),
    ]
)

# Sums of such numbers are exact whatever their order, so both engines must agree to the last bit.
dyadic = st.integers(-4_000, 4_000).map(lambda number: number / 8)
values = st.none() | dyadic | st.just(math.nan)


def instants(*, far: bool = False) -> st.SearchStrategy[dt.datetime]:
    """Return event times within some minutes, in steps that often meet the edge of a window."""
    near = st.integers(0, 600_000).map(lambda ms: START + dt.timedelta(milliseconds=ms // 250 * 250))
    return near | st.sampled_from(FAR) if far else near


def tables(
    *, rows_max: int = 60, far: bool = False, keys: Sequence[Any] = KEYS, nulls: bool = True
) -> st.SearchStrategy[pa.Table]:
    """Return tables of `SCHEMA`; `n` numbers the rows."""
    time = st.none() | instants(far=far) if nulls else instants(far=far)
    row = st.tuples(
        st.sampled_from(keys), time, values if nulls else dyadic, st.none() | st.integers(-9, 9), st.sampled_from(KEYS)
    )
    return st.lists(row, min_size=1, max_size=rows_max).map(_table)


def _table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    numbered = [dict(zip(SCHEMA.names, (number, *row), strict=True)) for number, row in enumerate(rows)]
    return pa.Table.from_pylist(numbered, schema=SCHEMA)


def batches(table: pa.Table, sizes: Iterable[int] = (7,)) -> list[pa.RecordBatch]:
    """Cut a table into batches of these sizes, again and again, empty ones among them."""
    wanted = [size for size in sizes if size > 0] or [7]
    made: list[pa.RecordBatch] = []
    start = 0
    while start < table.num_rows:
        size = wanted[len(made) % len(wanted)]
        made += table.slice(start, size).combine_chunks().to_batches() or []
        start += size
    return made


def comparable(value: Any) -> Any:
    """Return a value that is equal exactly if it means the same: one instant, one NaN, floats to twelve digits."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return 0.0 if value == 0 else float(f"{value:.12g}")
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case dict():
            return tuple((name, comparable(one)) for name, one in value.items())
        case list() | tuple():
            return tuple(comparable(one) for one in value)
        case _:
            return value


def unordered(rows: Iterable[Row]) -> list[str]:
    """Return rows for a comparison that does not care for their order."""
    return sorted(repr(comparable(row)) for row in rows)


def by_key(rows: Iterable[Row], *key: str) -> dict[str, list[str]]:
    """Return the rows of each key in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[repr(comparable([row[name] for name in key]))].append(repr(comparable(row)))
    return dict(found)
