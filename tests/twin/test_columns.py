"""Columns on their way to Spark and back."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.model.errors import FlowError
from headwater.twin.columns import aligned, conformed, spark_form, struct_of

INSTANT = datetime(1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.uint8(), 255),
        (pa.uint64(), (1 << 64) - 1),
        (pa.float16(), 0.5),
        (pa.dictionary(pa.int8(), pa.string()), "é"),
        (pa.large_string(), "é"),
        (pa.string_view(), "é"),
        (pa.binary(3), b"abc"),
        (pa.date64(), date(2026, 3, 29)),
        (pa.time32("s"), time(1, 2, 3)),
        (pa.timestamp("s"), datetime(2026, 3, 29, 2, 30)),  # noqa: DTZ001
        (pa.timestamp("us", "Europe/Berlin"), INSTANT),
        (pa.duration("ms"), timedelta(seconds=5)),
        (pa.decimal256(20, 2), Decimal("1.50")),
        (pa.large_list(pa.uint16()), [1, None]),
        (pa.list_(pa.int8(), 2), [1, 2]),
        (pa.struct([("a", pa.uint8()), ("b", pa.dictionary(pa.int32(), pa.string()))]), {"a": 1, "b": "x"}),
        (pa.map_(pa.string(), pa.uint32()), [("x", 1)]),
    ],
)
def test_values_come_back_as_they_were(kind: pa.DataType, value: Any) -> None:
    schema = pa.schema([pa.field("x", kind)])
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind)], schema=schema)
    form = spark_form(schema, "a stream")
    assert len(struct_of(form)) == 1, "Spark has a type for it"
    assert conformed(conformed(batch, form), schema).to_pylist() == batch.to_pylist()


def test_nanoseconds_are_cut_to_microseconds() -> None:
    schema = pa.schema([("at", pa.timestamp("ns"))])
    batch = pa.RecordBatch.from_arrays([pa.array([1_999], pa.timestamp("ns"))], schema=schema)
    form = spark_form(schema, "a stream")
    assert conformed(batch, form).column(0).cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (pa.null(), "column 'x' of source 's' is null in all of the first rows"),
        (pa.month_day_nano_interval(), "column 'x' of source 's' is a month_day_nano_interval"),
        (pa.decimal256(50, 2), "column 'x' of source 's' is a decimal256"),
    ],
)
def test_a_type_that_spark_lacks_is_refused(kind: pa.DataType, told: str) -> None:
    with pytest.raises(FlowError, match=told):
        spark_form(pa.schema([("x", kind)]), "source 's'")


def test_rows_are_aligned_by_name_and_a_missing_column_is_null() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    rows = pa.RecordBatch.from_pylist([{"a": 1}])
    assert aligned(rows, schema).to_pylist() == [{"a": 1, "b": None}]
    with pytest.raises(ValueError, match="has column 'c'"):
        aligned(pa.RecordBatch.from_pylist([{"a": 1, "c": 2}]), schema)
