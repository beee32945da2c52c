"""A few JSON lines are read as Arrow's own reader reads them, or left to it."""

from typing import Final

import orjson
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.files.small_json import FEW_ROWS, FewRows

SCHEMA: Final = pa.schema(
    [
        ("name", pa.string()),
        ("speed", pa.float64()),
        ("count", pa.int64()),
        ("good", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
    ]
)


def arrows(data: bytes, schema: pa.Schema = SCHEMA) -> pa.Table | None:
    """Return what Arrow's reader makes of the lines; None if it refuses them."""
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        return pa.json.read_json(pa.py_buffer(data), parse_options=options)
    except pa.ArrowInvalid:
        return None


def said(table: pa.Table) -> str:
    """Return the rows so that a zero with a sign is told from one without."""
    return repr(table.to_pylist())


instants = st.datetimes().map(lambda at: at.isoformat())
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65).map(lambda number: number if -(2**63) <= number < 2**64 else number % 7),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    instants,
    instants.map(lambda at: f"{at}Z"),
    st.lists(st.integers(0, 9), max_size=2),
)
rows = st.dictionaries(st.sampled_from([*SCHEMA.names, "other"]), values, max_size=7)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"\\'), max_size=6),
        "speed": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)),
        "count": st.integers(-(2**63), 2**63 - 1),
        "good": st.booleans(),
        "at": instants.map(lambda at: f"{at}Z"),
        "other": st.integers(0, 9),
    },
)


@given(st.lists(st.one_of(rows, fitting), min_size=1, max_size=5))
def test_what_is_read_here_is_what_arrow_reads(listed: list[dict[str, object]]) -> None:
    """For any rows: the same values, and nothing that Arrow would refuse."""
    data = b"".join(orjson.dumps(row) + b"\n" for row in listed)
    here = FewRows(SCHEMA).read(data)
    if here is not None:
        there = arrows(data)
        assert there is not None
        assert (here.schema, said(here)) == (there.schema, said(there.select(SCHEMA.names)))


def test_plain_rows_are_read_here() -> None:
    """What sensors send must not go the long way."""
    data = b'{"name":"a","speed":3,"count":4,"good":true,"at":"2015-07-15T00:00:00Z","more":{"x":1}}\n{"speed":-0.5}\n'
    here, there = FewRows(SCHEMA).read(data), arrows(data)
    assert here is not None
    assert there is not None
    assert said(here) == said(there)


@pytest.mark.parametrize(
    "data",
    [
        b'{"speed":1,"speed":2}\n',
        b'{"speed":1,"speed":2}\n{}\n',
        b'{"sp\\u0065ed":1,"speed":2}\n',
        b'{"count":1.0}\n',
        b'{"count":9223372036854775808}\n',
        b'{"speed":9007199254740993}\n',
        b'{"speed":-0}\n',
        b'{"good":1}\n',
        b'{"count":true}\n',
        b'{"name":1}\n',
        b'{"at":1}\n',
        b'{"at":"soon"}\n',
        b'{"name":"a"}{"name":"b"}\n',
        b'{"name":"\xff"}\n',
        b"[1]\n",
        b"null\n",
        b"\n",
        b'{"name":"a"\n',
        b'{"name":"a"}\n' * (FEW_ROWS + 1),
    ],
)
def test_what_is_doubtful_or_much_is_left_to_arrow(data: bytes) -> None:
    """Whether it is a row, and which, must not depend on how many come together."""
    assert FewRows(SCHEMA).read(data) is None


def test_a_type_that_is_not_plain_is_left_to_arrow() -> None:
    """Nested columns, other widths, decimals; and columns that each row must have."""
    assert FewRows(pa.schema([pa.field("a", pa.int64(), nullable=False)])).read(b'{"a":1}\n') is None
    assert FewRows(pa.schema([("a", pa.int32())])).read(b'{"a":1}\n') is None
    assert FewRows(pa.schema([("a", pa.list_(pa.int64()))])).read(b'{"a":[1]}\n') is None
