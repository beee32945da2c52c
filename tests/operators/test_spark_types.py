"""Spark's ways of writing a schema are read as PySpark itself would translate them to Arrow."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.model.errors import FlowError
from headwater.operators.processors.spark_types import arrow_schema

ATOMS = [
    spark.BooleanType(),
    spark.ByteType(),
    spark.ShortType(),
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.StringType(),
    spark.BinaryType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.TimestampNTZType(),
    spark.DecimalType(),
    spark.DecimalType(38, 18),
    spark.DayTimeIntervalType(),
    spark.DayTimeIntervalType(1, 1),
]


def structs(inner: Any) -> Any:
    """Return structs of other types."""
    fields = st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=4)
    return fields.map(
        lambda given: spark.StructType(
            [spark.StructField(f"f{place}", kind, nullable) for place, (kind, nullable) in enumerate(given)]
        )
    )


types = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.booleans()).map(lambda given: spark.ArrayType(*given)),
        st.tuples(st.sampled_from(ATOMS), inner, st.booleans()).map(lambda given: spark.MapType(*given)),
        structs(inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(structs(types))
def test_a_struct_type_is_what_pyspark_makes_of_it(given: spark.StructType) -> None:
    """With its nulls, at every depth."""
    assert arrow_schema(given) == to_arrow_schema(given, timezone="UTC", prefers_large_types=False)


def everywhere_nullable(kind: Any) -> Any:
    """Return the type as a line of DDL says it, which has no word for the nulls inside arrays and maps."""
    match kind:
        case spark.StructType():
            fields = [spark.StructField(one.name, everywhere_nullable(one.dataType)) for one in kind.fields]
            return spark.StructType(fields)
        case spark.ArrayType():
            return spark.ArrayType(everywhere_nullable(kind.elementType))
        case spark.MapType():
            return spark.MapType(kind.keyType, everywhere_nullable(kind.valueType))
    return kind


@settings(max_examples=200, deadline=None)
@given(structs(types), st.booleans())
def test_a_line_of_ddl_is_read_as_the_type_that_it_writes(given: spark.StructType, bare: bool) -> None:
    """With or without `struct<...>` around it."""
    written = given.simpleString()
    assert written.startswith("struct<")
    line = written.removeprefix("struct<").removesuffix(">") if bare else written
    assert arrow_schema(line) == arrow_schema(everywhere_nullable(given))


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("value int", [("value", pa.int32())]),
        ("VALUE INTEGER , n LONG", [("VALUE", pa.int32()), ("n", pa.int64())]),
        ("a: int, b:string", [("a", pa.int32()), ("b", pa.string())]),
        ("`a b` tinyint, `c``d` smallint", [("a b", pa.int8()), ("c`d", pa.int16())]),
        ("a varchar(10), b char(3), c string collate UNICODE", [(name, pa.string()) for name in "abc"]),
        ("a numeric(5), b dec(5,2)", [("a", pa.decimal128(5, 0)), ("b", pa.decimal128(5, 2))]),
        ("a timestamp_ltz, b timestamp_ntz", [("a", pa.timestamp("us", "UTC")), ("b", pa.timestamp("us"))]),
        ("a interval day to second, b interval hour", [("a", pa.duration("us")), ("b", pa.duration("us"))]),
        ("a time(6), b real", [("a", pa.time64("us")), ("b", pa.float32())]),
        ("größe double comment 'x, (y)', b int", [("größe", pa.float64()), ("b", pa.int32())]),
        ("struct int, map string", [("struct", pa.int32()), ("map", pa.string())]),
    ],
)
def test_ddl_is_read_as_people_write_it(line: str, fields: list[Any]) -> None:
    """In any case, with quoted names, comments and lengths."""
    assert arrow_schema(line) == pa.schema(fields)


def test_what_must_not_be_null_is_read() -> None:
    """At the top and within structs."""
    schema = arrow_schema("a int not null, s struct<x: int NOT NULL, y: int>")
    assert not schema.field("a").nullable
    assert [field.nullable for field in schema.field("s").type] == [False, True]


def test_what_is_always_null_may_be() -> None:
    """Arrow would refuse it otherwise, as PySpark does."""
    void = spark.StructType([spark.StructField("a", spark.NullType(), False)])
    assert arrow_schema(void) == arrow_schema("a void not null") == pa.schema([("a", pa.null())])


def test_an_arrow_schema_is_one_already() -> None:
    """And stays as it is."""
    schema = pa.schema([("a", pa.large_string())])
    assert arrow_schema(schema) is schema


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "it names no column"),
        ("a", "a name or a type is expected where it has nothing more"),
        ("a int b", "'b' is not expected behind a type"),
        ("a int,", "a name or a type is expected where it has nothing more"),
        ("int, b string", "',' is not a type"),
        ("a variant", "'variant' is not a type that this engine knows"),
        ("a interval year to month", "an interval of months or years has no fixed length"),
        ("a array<int", "'>' is expected where it has nothing more"),
        ("a array<int> >", "',' is expected where it has '>'"),
        ("a decimal(50,2)", "a decimal of 50 digits with 2 behind the point does not exist"),
        ("a decimal(x)", "'x' is not a number"),
        ("< int", "'<' is not the name of a column"),
        (5, "a int is not a schema"),
        (spark.IntegerType(), "a IntegerType is not a schema"),
        (spark.StructType([spark.StructField("a", spark.VariantType())]), "'variant' is not a type"),
    ],
)
def test_what_is_no_schema_is_explained(given: Any, sentence: str) -> None:
    """With where it goes wrong."""
    with pytest.raises(FlowError) as refusal:
        arrow_schema(given)
    assert sentence in str(refusal.value)
