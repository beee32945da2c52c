"""State kept under one schema, met by a processor that declares another: read as Spark does with Avro, or refused.

What Spark does in each case was seen on Spark 4.3 with `spark.sql.streaming.stateStore.encodingFormat=avro`.
"""

# ruff: noqa: N802, N803 - PySpark's names

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headwater.model.entries import EVERY_GROUP, group_of_entry
from headwater.model.errors import FlowError, StoreError
from headwater.model.keys import KEY_GROUPS
from headwater.operators.processors.processing import Process
from headwater.operators.processors.processor_schemas import declared, why_unreadable
from headwater.operators.processors.processor_state import declared_by
from headwater.operators.processors.schema_evolution import Unreadable, row_change
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.processors.spark_values import RowCodec
from headwater.operators.state_values import WrongState
from tests.operators.timed_bench import TimedBench

NOON = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - as PySpark gives it
NOON_US = 1_577_880_000_000_000
YEAR_MS = 31_536_000_000


class Keeping(StatefulProcessor):
    """Hands what it has kept to a list, then keeps a row, in a variable of each kind."""

    def __init__(self, ddl: Any, *row: Any, key_ddl: str = "k int", ttl_ms: int | None = None) -> None:
        self.ddl, self.row, self.key_ddl, self.ttl_ms = ddl, row, key_ddl, ttl_ms

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("v", self.ddl, self.ttl_ms)
        self.listed = handle.getListState("l", self.ddl, self.ttl_ms)
        self.mapped = handle.getMapState("m", self.key_ddl, self.ddl, self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        found = [self.value.get(), list(self.listed.get()), self.mapped.getValue((1,)), list(self.mapped.values())]
        SEEN.append((key[0], found))
        if self.row:
            self.value.update(self.row)
            self.listed.appendValue(self.row)
            self.mapped.updateValue((1,), self.row)
        return iter(())


SEEN: list[Any] = []  # what processors have found, since a processor on the bench is a copy


def on_bench(processor: Any, before: TimedBench | None = None, mode: str = "processingtime") -> TimedBench:
    """Return a processor on the bench, with the state that another one left."""
    config: dict[str, Any] = {"form": "rows", "time_mode": mode, "schema": arrow_schema("id string")}
    made = TimedBench(Process(processor=processor, key_columns=("id",), **config))
    made.kept = {} if before is None else dict(before.kept)
    return made


def found_by(on: TimedBench, key: str = "a") -> Any:
    """Return what a processor finds for a key when a row comes."""
    SEEN.clear()
    on.rows([{"id": key}])
    [(_, found)] = SEEN
    return found


def having_kept(ddl: Any, *row: Any) -> TimedBench:
    """Return a bench whose processor has kept a row under this schema."""
    on = on_bench(Keeping(ddl, *row))
    on.rows([{"id": "a"}])
    return on


@pytest.mark.parametrize(
    ("older", "row", "newer", "read"),
    [
        ("a int, b string", (7, "x"), "c double, b string, a long", (None, "x", 7)),
        ("a int, b string", (7, "x"), "b string", ("x",)),
        ("a int", (7,), "b int", (None,)),
        ("a int", (7,), "A int", (None,)),
        ("a int", (None,), "a long, b int", (None, None)),
        ("a byte", (7,), "a short", (7,)),
        ("a byte", (7,), "a int", (7,)),
        ("a short", (7,), "a long", (7,)),
        ("a int", (7,), "a double", (7.0,)),
        ("a int", (7,), "a float", (7.0,)),
        ("a int", (16_777_217,), "a float", (16_777_216.0,)),
        ("a long", (7,), "a float", (7.0,)),
        ("a long", (7,), "a double", (7.0,)),
        ("a float", (1.5,), "a double", (1.5,)),
        ("a string", ("x",), "a binary", (b"x",)),
        ("a binary", (b"x",), "a string", ("x",)),
        ("a binary", (b"\xff",), "a string", ("\ufffd",)),
        ("a date", (dt.date(2020, 1, 1),), "a int", (18262,)),
        ("a int", (7,), "a date", (dt.date(1970, 1, 8),)),
        ("a long", (7,), "a timestamp", (dt.datetime(1970, 1, 1, 0, 0, 0, 7),)),  # noqa: DTZ001
        ("a timestamp", (NOON,), "a long", (NOON_US,)),
        ("a timestamp", (NOON,), "a timestamp_ntz", (NOON,)),
        ("a time", (dt.time(1, 2, 3, 4),), "a long", (3_723_000_004,)),
        ("a long", (3_723_000_004,), "a time", (dt.time(1, 2, 3, 4),)),
        ("a decimal(10,2)", (Decimal("1.50"),), "a decimal(11,2)", (Decimal("1.50"),)),
        ("a struct<x:int>", ((1,),), "a struct<y:string,x:long>", (Row(y=None, x=1),)),
        ("a array<int>", ([1, None],), "a array<double>", ([1.0, None],)),
        ("a array<struct<x:int>>", ([(1,)],), "a array<struct<x:int,y:int>>", ([Row(x=1, y=None)],)),
        ("a map<string,int>", ({"k": 1, "n": None},), "a map<string,double>", ({"k": 1.0, "n": None},)),
        ("a void", (None,), "a int", (None,)),
    ],
)
def test_what_avro_s_rules_allow_is_read(older: str, row: Any, newer: str, read: Any) -> None:
    """In values, lists and maps; by name, null where a field is new."""
    value, listed, pair, values = found_by(on_bench(Keeping(newer), having_kept(older, *row)))
    assert (value, listed, tuple(pair), values) == (read, [read], read, [read])
    assert [type(one) for one in value] == [type(one) for one in read]
    assert list(pair.asDict()) == arrow_schema(newer).names


@pytest.mark.parametrize(
    ("older", "row", "newer", "reason"),
    [
        ("a long", (1,), "a int", "field 'a' was bigint and would be int"),
        ("a int", (1,), "a short", "field 'a' was int and would be smallint"),
        ("a double", (1.0,), "a float", "field 'a' was double and would be float"),
        ("a float", (1.0,), "a long", "field 'a' was float and would be bigint"),
        ("a int", (1,), "a string", "field 'a' was int and would be string"),
        ("a string", ("x",), "a int", "field 'a' was string and would be int"),
        ("a boolean", (True,), "a int", "field 'a' was boolean and would be int"),
        ("a decimal(10,2)", (Decimal(1),), "a decimal(12,4)", "was decimal(10,2) and would be decimal(12,4)"),
        ("a decimal(10,2)", (Decimal(1),), "a decimal(9,2)", "was decimal(10,2) and would be decimal(9,2)"),
        ("a int", (1,), "a decimal(20,2)", "field 'a' was int and would be decimal(20,2)"),
        ("a struct<x:long>", ((1,),), "a struct<x:int>", "field 'x' of field 'a' was bigint and would be int"),
        ("a struct<x:int>", ((1,),), "a struct<x:int,y:int not null>", "field 'y' of field 'a' may not be null"),
        ("a struct<x:int>", ((1,),), "a array<int>", "was struct<x: int> and would be array<int>"),
        ("a array<long>", ([1],), "a array<int>", "an element of field 'a' was bigint and would be int"),
        ("a map<string,long>", ({"k": 1},), "a map<string,int>", "a value of field 'a' was bigint and would be int"),
        ("a map<string,int>", ({"k": 1},), "a map<int,int>", "a key of field 'a' was string and would be int"),
    ],
)
def test_what_avro_s_rules_forbid_is_refused_before_a_row_is_read(
    older: str, row: Any, newer: str, reason: str
) -> None:
    """With Spark's condition, both schemas and the field; what is kept stays as it was."""
    before = having_kept(older, *row)
    on = on_bench(Keeping(newer, *row), before)
    with pytest.raises(StoreError) as refusal:
        on.rows([{"id": "another key, of which nothing is kept"}])
    told = str(refusal.value)
    assert (
        "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION] Schema evolution is not possible: state 'v' was kept as" in told
    )
    assert reason in told
    assert on.kept == before.kept


def test_rows_of_several_schemas_lie_side_by_side() -> None:
    """A row is written anew when the processor writes it, and not before."""
    on = on_bench(Keeping("a int", 1))
    on.rows([{"id": key} for key in "abc"])
    on = on_bench(Keeping("b string, a int", "x", 2), on)
    assert found_by(on, "a")[0] == (None, 1)
    on = on_bench(Keeping("a long, b string"), on)
    assert found_by(on, "a")[:2] == [(2, "x"), [(1, None), (2, "x")]]
    assert found_by(on, "b")[0] == (1, None)
    back = on_bench(Keeping("a int"), having_kept("a int, b int", 1, 2))
    assert found_by(back)[0] == (1,)


def test_a_schema_has_to_read_all_that_there_were_and_not_the_latest_alone() -> None:
    """A text under `a`, then another field, then a number under `a`: rows of the first may still be there."""
    on = on_bench(Keeping("b long", 5), having_kept("a string", "x"))
    assert found_by(on)[0] == (None,)
    with pytest.raises(StoreError, match="field 'a' was string and would be int"):
        on_bench(Keeping("a int"), on).rows([{"id": "a"}])


class One(StatefulProcessor):
    """Has the one variable that it is told to declare."""

    def __init__(self, declare: Callable[[Any], Any], use: Callable[[Any], Any] = lambda variable: None) -> None:
        self.declare, self.use = declare, use

    def init(self, handle: Any) -> None:
        self.variable = self.declare(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        SEEN.append((key[0], self.use(self.variable)))
        return iter(())


def test_the_kind_of_a_variable_cannot_change() -> None:
    """As in Spark; before, the list would have been empty without a word."""
    one = on_bench(One(lambda h: h.getValueState("s", "a int"), lambda v: v.update((1,))))
    one.rows([{"id": "a"}])
    on = on_bench(One(lambda h: h.getListState("s", "a int"), lambda v: list(v.get())), one)
    with pytest.raises(StoreError, match=r"\[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE\] state 's' was a ValueState"):
        on.rows([{"id": "a"}])


def test_keys_of_a_map_may_be_renamed_and_nothing_else() -> None:
    """They are found by their bytes."""

    def mapping(key: Any, value: str = "v int") -> Callable[[Any], Any]:
        return lambda h: h.getMapState("m", key, value)

    on = on_bench(One(mapping("k int"), lambda m: m.updateValue((1,), (2,))))
    on.rows([{"id": "a"}])
    renamed = on_bench(One(mapping("j int", "w string, v long"), lambda m: list(m.iterator())), on)
    assert found_by(renamed) == [((1,), (None, 2))]
    for key in ("k long", "k int, j int", "k string"):
        with pytest.raises(StoreError, match=r"\[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE\] the keys of state 'm'"):
            on_bench(One(mapping(key)), on).rows([{"id": "a"}])
    strict = StructType([StructField("k", IntegerType(), False)])
    assert found_by(on_bench(One(mapping(strict), lambda m: m.getValue((1,))), on)) == (2,)


def test_what_is_deleted_may_be_declared_anew_with_any_schema() -> None:
    """Its schemas are forgotten with it."""
    on = having_kept("a string", "x")

    def anew(handle: Any) -> Any:
        for name in "vlm":
            handle.deleteIfExists(name)
        return handle.getListState("v", "a int")

    assert found_by(on_bench(One(anew, lambda v: list(v.get())), on)) == []
    dropped = on_bench(One(lambda h: h.getValueState("other", "a int")), on)
    dropped.rows([{"id": "a"}])
    with pytest.raises(StoreError, match="SCHEMA_EVOLUTION"):  # what is only not declared is still there
        on_bench(Keeping("a int"), dropped).rows([{"id": "a"}])


def test_a_time_to_live_may_be_added_and_taken_away() -> None:
    """What is kept stays as it was put; in Spark the query has to begin anew."""
    on = having_kept("a int", 1)
    on = on_bench(Keeping("a long", 2, ttl_ms=YEAR_MS), on)
    assert found_by(on)[0] == (1,)
    on = on_bench(Keeping("a long, b int"), on)
    assert found_by(on)[:2] == [(2, None), [(1, None), (2, None)]]


NOT_NULL = StructType([StructField("id", IntegerType(), False), StructField("name", StringType(), False)])


@pytest.mark.parametrize(
    "declare",
    [
        lambda h: h.getValueState("state", NOT_NULL),
        lambda h: h.getListState("state", NOT_NULL),
        lambda h: h.getMapState("state", "k int", NOT_NULL),
        lambda h: h.getValueState("state", "id int not null, name string not null"),
    ],
)
def test_a_schema_with_fields_that_may_not_be_null_is_refused(declare: Any) -> None:
    """When the flow is built, and by the handle; as in Spark, what is inside a field may be without nulls."""
    told = (
        r"\[TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE\] all fields of state 'state' must be nullable.*: id, name|id"
    )
    with pytest.raises(FlowError, match=told):
        declared_by(One(declare), "none")
    with pytest.raises(PySparkRuntimeError, match="SCHEMA_MUST_BE_NULLABLE"):
        on_bench(One(declare)).rows([{"id": "a"}])
    assert declared_by(One(lambda h: h.getValueState("s", "a struct<x:int not null>")), "none") is not None


def test_what_a_processor_declares_is_known_before_it_runs() -> None:
    """By running `init` and `close` of a copy, as Spark's driver does; if that fails, a worker will say so."""
    calls: list[str] = []

    class Told(One):
        def close(self) -> None:
            calls.append("closed")

        def __deepcopy__(self, memo: Any) -> "Told":
            calls.append("copied")
            return Told(self.declare)

    def declare(handle: Any) -> Any:
        handle.getValueState("gone", "a int")
        handle.deleteIfExists("gone")
        handle.getMapState("m", "k string", "v decimal(10,2), `odd name` array<int>")
        return handle.getListState("l", "a timestamp_ntz", 5)

    found = declared_by(Told(declare), "processingtime")
    assert found is not None
    assert calls == ["copied", "closed"]
    assert {name: str(one) for name, one in found.by_name.items()} == {
        "m": "Map(k string -> v decimal(10,2), `odd name` array<int>)",
        "l": "List(a timestamp_ntz)",
    }
    assert found.forgotten == ("gone",)
    assert declared_by(One(lambda h: h.nothing_like_it()), "none") is None


def test_state_of_before_there_were_schemas_is_read_by_the_first_that_is_declared() -> None:
    """A store that was last written by an earlier version says nothing of schemas; the first run does, as it is."""
    written = having_kept("a int", 7)
    encoded = RowCodec(arrow_schema("a int"), "it").encode((7,))
    legacy = on_bench(Keeping("a int"))
    legacy.kept = {
        entry: value[: -len(encoded) - 5] + encoded if value.endswith(encoded) else value
        for entry, value in written.kept.items()
        if group_of_entry(entry) != EVERY_GROUP or b"key schema" in entry
    }
    assert legacy.kept.keys() < written.kept.keys()
    assert found_by(on_bench(Keeping("a int"), legacy))[:2] == [(7,), [(7,)]]
    with pytest.raises(WrongState, match="state 'v' was kept with 1 fields, but is now declared with 2"):
        on_bench(Keeping("a int, b int"), legacy).rows([{"id": "a"}])
    once = on_bench(Keeping("a int"), legacy)
    once.rows([{"id": "another"}])
    assert found_by(on_bench(Keeping("b string, a long"), once))[:2] == [(None, 7), [(None, 7)]]
    with pytest.raises(StoreError, match="SCHEMA_EVOLUTION"):
        on_bench(Keeping("a string"), once).rows([{"id": "a"}])


def test_keys_that_move_are_read_by_their_own_schemas_wherever_they_go() -> None:
    """Two instances, of which only one has seen the schema in between."""
    keys = [str(number) for number in range(40)]
    left = on_bench(Keeping("a int", 1))
    left.rows([{"id": key} for key in keys])
    right = left.cut(range(512, KEY_GROUPS))
    seen = on_bench(Keeping("b string, a int", "x", 2), right)
    seen.groups = right.groups
    here = {key for key in keys if any(group_of_entry(one) in right.groups and key_in(one, key) for one in right.kept)}
    seen.rows([{"id": key} for key in sorted(here)])
    left.merge(seen)
    on = on_bench(Keeping("a long"), left)
    assert {key: found_by(on, key)[0] for key in keys} == {key: (2,) if key in here else (1,) for key in keys}
    assert 0 < len(here) < len(keys)


def key_in(entry: bytes, key: str) -> bool:
    """Whether an entry is of a key, which is a short text."""
    return entry[11:].startswith(bytes([0xA0 + len(key)]) + key.encode())


def test_all_instances_that_a_worker_runs_are_looked_at() -> None:
    """It runs `init` once: what is deleted there is deleted of each, and each is refused that cannot be read."""
    before = on_bench(Keeping("a int", 1))
    before.rows([{"id": str(number)} for number in range(40)])
    other = before.cut(range(512, KEY_GROUPS))

    def anew(handle: Any) -> Any:
        for name in "vlm":
            handle.deleteIfExists(name)

    logic = on_bench(One(anew)).operator.open()
    for half in (before, other):
        moment = half._moment()
        half._commit(moment, logic.rows(pa.record_batch({"id": ["x"]}), 0, moment))
        assert {group_of_entry(entry) for entry in half.kept} == {EVERY_GROUP}


ATOMS = (
    "a boolean, b byte, c long, d float, e double, f string, g binary, h date, i timestamp, j timestamp_ntz, k time, "
    "l interval day to second, m decimal(38,6)"
)

names = st.text(min_size=1, max_size=8)
kinds = st.recursive(
    st.sampled_from([field.type for field in arrow_schema(ATOMS)]),
    lambda inner: st.one_of(
        inner.map(lambda one: pa.list_(pa.field("element", one))),
        inner.map(lambda one: pa.map_(pa.string(), one)),
        st.dictionaries(names, inner, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=5,
)
schemas = st.dictionaries(names, kinds, min_size=1, max_size=4).map(lambda fields: pa.schema(list(fields.items())))


@settings(max_examples=150, deadline=None)
@given(schemas, st.randoms(use_true_random=False))
def test_fields_may_come_go_and_change_places_in_any_schema(schema: pa.Schema, random: Any) -> None:
    """Whatever they are called, and whatever is in them."""
    fields = [field for field in schema if random.random() < 0.7]
    random.shuffle(fields)
    newer = pa.schema([*fields, pa.field("new to it", pa.int32())])
    change = row_change(schema, newer)
    kept = {field.name: [place] for place, field in enumerate(schema)}
    assert change([[place] for place in range(len(schema))]) == [*(kept[field.name] for field in fields), None]
    assert why_unreadable("s", declared("Value", schema), declared("Value", newer)) is None


def test_two_fields_of_one_name_cannot_be_found_by_it() -> None:
    twice = pa.schema([("a", pa.int32()), ("a", pa.int32())])
    with pytest.raises(Unreadable, match="two fields have one name"):
        row_change(twice, pa.schema([("a", pa.int32())]))
    assert why_unreadable("s", declared("Value", twice), declared("Value", twice)) is None
