"""The cases of PySpark's tests of `transformWithStateInPandas` and `transformWithState`, one by one, under their names.

PySpark's processors are in `processors`, written anew from what they do; a batch of Spark's is one call on the bench,
or a run on a node where the case is about that. `docs/transform-with-state.md` lists all cases.
"""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

import headwater as hw
from headwater import functions as F
from headwater.engine.policies import Consumption
from headwater.model.errors import StoreError
from headwater.operators.functions import WrongResult
from headwater.operators.processors.processing import Process, ProcessorForm
from headwater.operators.processors.spark_types import arrow_schema
from tests.operators.timed_bench import TimedBench
from tests.pyspark_suite import processors as theirs

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
FORMS = pytest.mark.parametrize("form", ["pandas", "rows"])

FIRST = [("0", 123), ("0", 46), ("1", 146), ("1", 346)]
SECOND = [("0", 123), ("0", 223), ("0", 323), ("1", 246), ("1", 6)]
THIRD = [("0", 123), ("1", 6)]


def readings(pairs: list[tuple[str, int]]) -> pa.RecordBatch:
    """Return the input of most of PySpark's tests."""
    return pa.record_batch(
        {
            "id": pa.array([name for name, _ in pairs], pa.string()),
            "temperature": pa.array([temperature for _, temperature in pairs], pa.int32()),
        }
    )


def bench(processor: Any, form: ProcessorForm, schema: str, mode: str = "none", **more: Any) -> TimedBench:
    """Return a processor on the bench."""
    config = {"key_columns": ("id",), "form": form, "time_mode": mode, "schema": arrow_schema(schema), **more}
    made = TimedBench(Process(processor=processor, **config))
    made.now_us = START_US
    return made


def pairs(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return some columns."""
    return [tuple(row[name] for name in names) for row in rows]


COUNTS = "id string, countAsString string"
VIOLATIONS: dict[str, Any] = {"pandas": theirs.PandasViolations(), "rows": theirs.RowViolations()}
VIOLATIONS_FOR_A_WHILE: dict[str, Any] = {
    "pandas": theirs.PandasViolationsForAWhile(),
    "rows": theirs.RowViolationsForAWhile(),
}
BY_EVENT_TIME: dict[str, Any] = {"pandas": theirs.PandasByEventTime(), "rows": theirs.RowByEventTime()}


def check_violations(processor: Any, form: ProcessorForm, mode: str) -> None:
    """Run two batches; the violations of both are kept."""
    on = bench(processor, form, COUNTS, mode)
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "2"), ("1", "2")]
    assert pairs(on.rows(readings(SECOND)), "id", "countAsString") == [("0", "3"), ("1", "2")]
    peeked = bench(PeekViolations(form), form, "id string, violations int", mode, key_columns=("id",))
    peeked.kept = dict(on.kept)
    assert pairs(peeked.rows(readings(THIRD)), "id", "violations") == [("0", 4), ("1", 3)]


@FORMS
def test_basic(form: ProcessorForm) -> None:
    """Counts go on from batch to batch."""
    check_violations(VIOLATIONS[form], form, "none")


@FORMS
def test_value_state_ttl_basic(form: ProcessorForm) -> None:
    """A time to live that does not come to its end changes nothing."""
    check_violations(VIOLATIONS_FOR_A_WHILE[form], form, "processingtime")


@FORMS
def test_query_restarts(form: ProcessorForm, tmp_path: Path) -> None:
    """On a node that is stopped and started again on its store."""
    out = hw.to.memory()

    def counting(batches: list[tuple[str, int]]) -> hw.Flow:
        rows = hw.read.iterable(readings(batches).to_pylist(), name="rows")
        counts = rows.key_by("id").process(VIOLATIONS[form], COUNTS, form=form, name="counts")
        return hw.flow("restarts", counts.sink(out, name="out"))

    for batches in (FIRST, FIRST + SECOND):
        hw.run(counting(batches), spark=False, store=tmp_path)
    assert Counter(pairs(out.rows(), "id", "countAsString")) == Counter(
        [("0", "2"), ("1", "2"), ("0", "3"), ("1", "2")]
    )


class PeekViolations(theirs.InBothForms):
    """Tells what was kept."""

    def init(self, handle: Any) -> None:
        self.violations = handle.getValueState("numViolations", "value int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        yield self.made(id=key[0], violations=self.violations.get()[0])


@FORMS
def test_non_exist_value_state(form: ProcessorForm) -> None:
    """What is not there is not found, and may be cleared."""
    on = bench(theirs.NoValue(form), form, COUNTS, "none")
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "0"), ("1", "0")]


@FORMS
def test_list_state(form: ProcessorForm) -> None:
    """Three iterators over two lists do not disturb one another."""
    on = bench(theirs.Lists(form), form, COUNTS, "processingtime")
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "2"), ("1", "2")]


@FORMS
def test_list_state_large_ttl(form: ProcessorForm) -> None:
    """A time to live that does not come to its end changes nothing."""
    on = bench(theirs.ListsForAWhile(form), form, COUNTS, "processingtime")
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "2"), ("1", "2")]


@FORMS
def test_map_state(form: ProcessorForm) -> None:
    """All that a map can."""
    on = bench(theirs.Maps(form), form, COUNTS, "none")
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "2"), ("1", "2")]


@FORMS
def test_map_state_large_ttl(form: ProcessorForm) -> None:
    """A time to live that does not come to its end changes nothing."""
    on = bench(theirs.MapsForAYear(form), form, COUNTS, "processingtime")
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "2"), ("1", "2")]


@FORMS
def test_list_state_large_list(form: ProcessorForm) -> None:
    """A list grows by `put` for one key and by `appendList` for the other."""
    on = bench(theirs.GrowingList(form), form, "id string, prevElements string, updatedElements string")
    hundred, more = (",".join(map(str, range(size))) for size in (100, 190))
    columns = ("id", "prevElements", "updatedElements")
    assert pairs(on.rows(readings(FIRST)), *columns) == [("0", "", hundred), ("1", "", hundred)]
    assert pairs(on.rows(readings(SECOND)), *columns) == [("0", hundred, more), ("1", hundred, more)]


@FORMS
def test_value_state_ttl_expiration(form: ProcessorForm) -> None:
    """Six seconds between batches, ten to live; key 0 does not renew in the second."""
    on = bench(theirs.TimeToLive(form), form, "id string, count int", "processingtime")
    expected = [
        {"ttl-count": (1, 1), "count": (1, 1), "ttl-list-state-count": (1, 1), "ttl-map-state-count": (1, 1)},
        {"ttl-count": (2, 2), "count": (2, 2), "ttl-list-state-count": (3, 3), "ttl-map-state-count": (2, 2)},
        {"ttl-count": (1, 3), "count": (3, 3), "ttl-list-state-count": (1, 7), "ttl-map-state-count": (1, 3)},
    ]
    for counts in expected:
        made = dict(pairs(on.rows(readings([("1", 0), ("0", 0)])), "id", "count"))
        assert made == {f"{name}-{key}": both[key] for name, both in counts.items() for key in (0, 1)}
        on.clock(on.now_us + 6 * SECOND_US)


@FORMS
def test_proc_timer(form: ProcessorForm) -> None:
    """Rows that come when a timer is due are handled before it."""
    on = bench(theirs.ByTheClock(form), form, "id string, countAsString string, timeValues string", "processingtime")
    told: list[list[tuple[str, str]]] = []
    for number, batch in enumerate((THIRD, FIRST, SECOND)):
        on.now_us = START_US + number * SECOND_US
        made = on.rows(readings(batch)) + (on.clock(on.now_us) if number else [])
        told.append(sorted(pairs(made, "id", "countAsString")))
        expired = [int(row["timeValues"]) for row in made if row["countAsString"] == "-1"]
        assert all(expiry_ms < on.now_us // 1000 for expiry_ms in expired)
    assert told == [
        [("0", "1"), ("1", "1")],
        [("0", "-1"), ("0", "3"), ("1", "3")],
        [("0", "-1"), ("0", "3"), ("1", "5")],
    ]


@FORMS
def test_a_timer_by_the_clock_does_not_wait_for_rows(form: ProcessorForm) -> None:
    """Here it fires when its time has come; in Spark, with the next batch."""
    on = bench(theirs.ByTheClock(form), form, "id string, countAsString string, timeValues string", "processingtime")
    now_ms = START_US // 1000
    columns = ("id", "countAsString", "timeValues")
    assert pairs(on.rows(readings(THIRD)), *columns) == [("0", "1", str(now_ms)), ("1", "1", str(now_ms))]
    assert on.clock(START_US + 999) == []
    assert pairs(on.clock(START_US + 5_000), *columns) == [("0", "-1", str(now_ms + 1))]
    made = on.rows(readings(FIRST))
    assert pairs(made, *columns) == [("0", "2", str(now_ms + 5)), ("1", "3", str(now_ms + 5))]


def at_seconds(*seconds: int) -> pa.RecordBatch:
    """Return rows of key a with these event times."""
    times = pa.array([second * SECOND_US for second in seconds], pa.timestamp("us", "UTC"))
    return pa.record_batch({"id": ["a"] * len(seconds), "eventTime": times})


@FORMS
def test_event_time(form: ProcessorForm) -> None:
    """A timer at the watermark fires at once, and forgets the maximum of its batch."""
    on = bench(BY_EVENT_TIME[form], form, "id string, timestamp string", "eventtime")
    columns = ("id", "timestamp")
    assert pairs(on.rows(at_seconds(20)), *columns) == [("a", "20")]
    assert pairs(on.clock(START_US), *columns) == [("a-expired", "0")]
    assert on.watermark(10 * SECOND_US) == []
    assert pairs(on.rows(at_seconds(4)), *columns) == [("a", "4")]
    assert pairs(on.clock(START_US), *columns) == [("a-expired", "10000")]
    assert pairs(on.rows(at_seconds(2, 11, 13, 15)), *columns) == [("a", "15")]
    assert pairs(on.clock(START_US), *columns) == [("a-expired", "10000")]
    assert on.clock(START_US) == []


@FORMS
@pytest.mark.parametrize("mode", ["none", "processingtime"])
def test_wmark_and_non_event_time(form: ProcessorForm, mode: str) -> None:
    """A watermark parts no rows where the processor does not go by event time."""
    on = bench(theirs.Earliest(form), form, "id string, timestamp string", mode, event_time="eventTime")
    for seconds, earliest in (([20], "20"), ([4], "4"), ([2, 11, 13, 15], "2")):
        assert pairs(on.rows(at_seconds(*seconds)), "id", "timestamp") == [("a", earliest)]
        assert on.watermark(10 * SECOND_US) == []


@FORMS
def test_timers_single_partition(form: ProcessorForm, tmp_path: Path) -> None:
    """The same with one instance, as it is on the bench anyway."""
    test_event_time(form)
    test_proc_timer(form)
    test_init_state_with_timers(form)
    test_restart_with_multiple_rows_init_state(form, tmp_path)


def chained(form: ProcessorForm, *keys: str) -> list[tuple[int, int]]:
    """Return the counts by the event time that a processor gives its rows, in seconds, and how many rows there were."""
    out = hw.to.memory()
    rows = [{"id": name, "eventTime": dt.datetime.fromtimestamp(second, dt.UTC)} for name, second in CHAINED]
    times = (
        hw.read.iterable(rows)
        .with_watermark("eventTime", "5 seconds")
        .key_by("id")
        .process(
            theirs.FirstTime(form),
            "id string, outputTimestamp timestamp",
            time_mode="EventTime",
            event_time="eventTime",
            form=form,
        )
    )
    grouped = times.key_by(*keys) if keys else times
    made = grouped.window(F.window("outputTimestamp", "1 second")).agg(F.count())
    hw.run(hw.flow("chained", made.sink(out)), spark=False, consumption=Consumption.parse("1"))
    return sorted((int(row["window"]["start"].timestamp()), row["count"]) for row in out.rows())


CHAINED = [("a", 10), ("b", 15), ("a", 11), ("c", 25), ("a", 5)]


@FORMS
def test_chaining_ops(form: ProcessorForm) -> None:
    """A window behind a processor, by its own event time: 5 is late. What is left comes out when the input ends."""
    for keys in ((), ("id",)):
        assert chained(form, *keys) == [(10, 1), (11, 1), (15, 1), (25, 1)]


@FORMS
def test_batch_query(form: ProcessorForm) -> None:
    """A bounded input is a batch."""
    on = bench(theirs.Maps(form), form, COUNTS)
    assert pairs(on.rows(readings(FIRST)) + on.end(), "id", "countAsString") == [("0", "2"), ("1", "2")]


@FORMS
def test_batch_query_initial_state(form: ProcessorForm) -> None:
    """And is given an initial state, too."""
    on = bench(theirs.Adding(form), form, "id string, value string", initial_state=INITIAL)
    made = on.rows(readings(FIRST)) + on.end()
    assert pairs(made, "id", "value") == [("0", str(789 + 123 + 46)), ("1", str(146 + 346))]


INITIAL = pa.table({"id": ["0", "3"], "initVal": pa.array([789, 987], pa.int32())})


@FORMS
def test_non_contiguous_grouping_cols(form: ProcessorForm) -> None:
    """The columns of a key may stand apart."""
    on = bench(theirs.Adding(form), form, "id1 string, id2 string, value string", key_columns=("id1", "id2"))
    rows = {"id1": ["0", "0", "1", "1"], "temperature": pa.array([123, 46, 146, 346]), "id2": ["1", "1", "2", "2"]}
    made = on.rows(pa.record_batch(rows))
    assert pairs(made, "id1", "id2", "value") == [("0", "1", str(123 + 46)), ("1", "2", str(146 + 346))]


@FORMS
def test_init_state(form: ProcessorForm) -> None:
    """It is given once, before the first rows, also for keys that have no rows yet."""
    on = bench(theirs.Adding(form), form, "id string, value string", initial_state=INITIAL)
    assert pairs(on.rows(readings(FIRST)), "id", "value") == [("0", str(789 + 123 + 46)), ("1", str(146 + 346))]
    made = on.rows(readings([("0", 67), ("3", 12)]))
    assert pairs(made, "id", "value") == [("0", str(789 + 123 + 46 + 67)), ("3", str(987 + 12))]


@FORMS
def test_non_contiguous_grouping_cols_with_init_state(form: ProcessorForm) -> None:
    """Keys of several columns may stand anywhere among the others."""
    initial = pa.table({"initVal": pa.array([789, 987], pa.int32()), "id1": ["0", "3"], "id2": ["1", "2"]})
    rows = pa.record_batch(
        {"id1": ["0", "0", "1", "1"], "temperature": pa.array([123, 46, 146, 346]), "id2": ["1", "1", "2", "2"]}
    )
    more = {"key_columns": ("id1", "id2"), "initial_state": initial}
    on = bench(theirs.Adding(form), form, "id1 string, id2 string, value string", **more)
    made = on.rows(rows)
    assert pairs(made, "id1", "id2", "value") == [("0", "1", str(789 + 123 + 46)), ("1", "2", str(146 + 346))]


@FORMS
def test_init_state_with_timers(form: ProcessorForm) -> None:
    """Timers of the initial state fire for keys without rows, too."""
    on = bench(theirs.AddingWithTimers(form), form, "id string, value string", "processingtime", initial_state=INITIAL)
    assert pairs(on.rows(readings(FIRST)), "id", "value") == [("0", str(789 + 123 + 46)), ("1", str(146 + 346))]
    assert sorted(pairs(on.clock(START_US), "id")) == [("0-expired",), ("3-expired",)]
    assert pairs(on.rows(readings([("0", 67), ("3", 12)])), "id") == [("0",), ("3",)]
    assert on.clock(START_US + SECOND_US) == []


@FORMS
def test_init_state_of_several_rows(form: ProcessorForm) -> None:
    """As one DataFrame, or row by row."""
    initial = pa.table({"id": ["0", "3", "0"], "initVal": pa.array([1, 2, 3], pa.int32())})
    on = bench(theirs.ListOfInitialState(form), form, "id string, value string", initial_state=initial)
    assert pairs(on.rows(readings(THIRD)), "id", "value") == [("0", "1,3"), ("1", "")]


@FORMS
def test_restart_with_multiple_rows_init_state(form: ProcessorForm, tmp_path: Path) -> None:
    """What one processor has kept in a list is read, and is the initial state of another, row by row."""
    on_a_node(theirs.Lists(form), form, tmp_path, FIRST)
    kept = hw.read_state(tmp_path, "f", "it", "listState1").to_pylist()
    initial = pa.Table.from_pylist(
        [{"id": row["key"]["id"], "initVal": row["value"]["temperature"]} for row in kept],
        schema=arrow_schema("id string, initVal int"),
    )
    assert initial.num_rows == 10
    on = bench(theirs.AddingOverAList(form), form, "id string, value string", initial_state=initial)
    assert pairs(on.rows(readings(FIRST)), "id", "value") == [("0", str(123 + 46)), ("1", str(146 + 346))]
    made = on.rows(readings([("0", 67), ("3", 12)]))
    assert pairs(made, "id", "value") == [("0", str(123 + 46 + 67)), ("3", "12")]
    listed = bench(theirs.ListOfInitialState(form), form, "id string, value string")
    listed.kept = dict(on.kept)
    made = listed.rows(readings(THIRD))
    for row in made:
        assert sorted(map(int, row["value"].split(","))) == [20, 20, 111, 120, 120]
    assert {row["id"] for row in made} == {"0", "1"}


def on_a_node(processor: Any, form: ProcessorForm, store: Path, *batches: list[tuple[str, int]], **more: Any) -> None:
    """Run batches on a node, each a run of its own on the same store."""
    rows: list[tuple[str, int]] = []
    for batch in batches:
        rows += batch
        source = hw.read.iterable(readings(rows).to_pylist(), name="rows").key_by("id")
        made = source.process(processor, COUNTS, form=form, name="it", time_mode="ProcessingTime", **more)
        hw.run(hw.flow("f", made.sink(hw.to.nothing(), name="out")), spark=False, store=store)


def declared(store: Path) -> dict[str, tuple[str, bool]]:
    """Return the variables of the processor in a store: their kinds, and whether they have a time to live."""
    found = hw.read_state(store, "f", "it").to_pylist()
    assert {(row["operator"], row["instances"], row["time_mode"]) for row in found} == {("it", 1, "processingtime")}
    return {row["variable"]: (row["kind"], row["ttl_ms"] is not None) for row in found}


def check_map_metadata(form: ProcessorForm, store: Path, **more: Any) -> None:
    """Look at a map with a time to live, and at a list that is empty."""
    on_a_node(theirs.MapsToRead(form), form, store, FIRST, **more)
    assert declared(store) == {"mapState": ("Map", True), "listState": ("List", False), "timers": ("Timer", False)}
    kept = sorted(hw.read_state(store, "f", "it", "mapState").to_pylist(), key=lambda row: row["key"]["id"])
    assert [(row["key"], row["map_key"], row["value"]) for row in kept] == [
        ({"id": id_}, {"name": "key2"}, {"count": 2}) for id_ in "01"
    ]
    assert len({row["expires_ms"] for row in kept}) == 1
    assert kept[0]["expires_ms"] is not None
    assert hw.read_state(store, "f", "it", "listState").num_rows == 0
    assert hw.read_state(store, "f", "it", "timers").num_rows == 0


@FORMS
def test_map_state_metadata(form: ProcessorForm, tmp_path: Path) -> None:
    """What there is in a state can be looked at from outside."""
    check_map_metadata(form, tmp_path)


@FORMS
def test_map_state_metadata_with_init_state(form: ProcessorForm, tmp_path: Path) -> None:
    """Also where there was an initial state."""
    initial = pa.table({"id": ["0", "3"], "temperature": pa.array([789, 987], pa.int32())})
    check_map_metadata(form, tmp_path, initial_state=initial)


@FORMS
def test_list_state_metadata(form: ProcessorForm, tmp_path: Path) -> None:
    """The elements of several lists, in their order."""
    on_a_node(theirs.Lists(form), form, tmp_path, FIRST, SECOND)
    lists = dict.fromkeys(("listState1", "listState2", "listStateTimestamp"), ("List", False))
    assert declared(tmp_path) == {**lists, "timers": ("Timer", False)}
    for name, last in (("listState1", 111), ("listState2", 222)):
        found: dict[str, list[int]] = {"0": [], "1": []}
        for row in hw.read_state(tmp_path, "f", "it", name).to_pylist():
            found[row["key"]["id"]].append(row["value"]["temperature"])
        assert found == {"0": [120, 20, last, 120, 20], "1": [120, 20, last, 120, 20]}


@FORMS
def test_value_state_metadata(form: ProcessorForm, tmp_path: Path) -> None:
    """Values as they are now: there is no feed of changes, and no state of earlier batches."""
    for batches, expected in (((FIRST,), {"0": 1, "1": 2}), ((FIRST, SECOND), {"0": 4, "1": 3})):
        store = tmp_path / str(len(batches))
        on_a_node(VIOLATIONS[form], form, store, *batches)
        assert declared(store) == {"numViolations": ("Value", False), "timers": ("Timer", False)}
        kept = hw.read_state(store, "f", "it", "numViolations").to_pylist()
        assert {row["key"]["id"]: row["value"]["value"] for row in kept} == expected


@FORMS
def test_init_state_with_extra_transformation(form: ProcessorForm) -> None:
    """What comes out goes on to be something else."""
    out = hw.to.memory()
    rows = [*readings(FIRST).to_pylist(), *readings([("0", 67), ("3", 12)]).to_pylist()]
    sums = hw.read.iterable(rows).key_by("id")
    made = sums.process(theirs.Adding(form), "id string, value string", form=form, initial_state=INITIAL)
    told = made.map(as_json)
    hw.run(hw.flow("told", told.sink(out)), spark=False, consumption=Consumption.parse("1"))
    last = {row["key"]: row["value"] for row in out.rows()}
    sums_of = {"0": 789 + 123 + 46 + 67, "1": 146 + 346, "3": 987 + 12}
    assert last == {key: f'{{"value":"{value}"}}' for key, value in sums_of.items()}


def as_json(row: hw.Row) -> hw.Row:
    """A row of two texts: the key, and the rest as JSON."""
    return {"key": row["id"], "value": json.dumps({"value": row["value"]}, separators=(",", ":"))}


@FORMS
def test_composite_type(form: ProcessorForm) -> None:
    """Lists, dicts and named tuples are kept within values, twice for the same key."""
    on = bench(
        theirs.CompositeState(form),
        form,
        "id string, value_arr string, list_state_arr string, map_state_arr string, nested_map_state_arr string",
    )
    plain, nested = '{"key1": [1], "key2": [10]}', '{"e1": {"e2": 5, "e3": 10}}'
    assert [list(row.values()) for row in on.rows(readings(FIRST))] == [
        ["0", "0", "0", plain, nested],
        ["1", "0", "0", plain, nested],
    ]
    assert [list(row.values()) for row in on.rows(readings(SECOND))] == [
        ["0", "669", "0,669", '{"0": [669], "key1": [1], "key2": [10]}', '{"e1": {"0": 669, "e2": 5, "e3": 10}}'],
        ["1", "252", "0,252", '{"1": [252], "key1": [1], "key2": [10]}', '{"e1": {"1": 252, "e2": 5, "e3": 10}}'],
    ]


@FORMS
def test_composite_output_schema(form: ProcessorForm) -> None:
    """Lists, maps and structs come out, with the schema as DDL."""
    inner = "struct<intValue:int,doubleValue:double,arrayValue:array<string>,mapValue:map<string,string>>"
    on = bench(
        theirs.CompositeOutput(form),
        form,
        "primitiveValue string, listOfPrimitive array<string>, mapOfPrimitive map<string,string>, "
        f"listOfComposite array<{inner}>, mapOfComposite map<string,{inner}>",
    )
    [row] = on.rows(readings([("0", 1), ("0", 2)]))
    structs = [
        {"intValue": i, "doubleValue": i * 1.5, "arrayValue": [f"elem_{i}"], "mapValue": [(f"map_{i}", f"val_{i}")]}
        for i in range(2)
    ]
    assert row == {
        "primitiveValue": "key_0_count_2",
        "listOfPrimitive": ["item_0", "item_1"],
        "mapOfPrimitive": [("key0", "value0"), ("key1", "value1")],
        "listOfComposite": structs,
        "mapOfComposite": [("nested_key0", structs[0]), ("nested_key1", structs[1])],
    }


@FORMS
def test_large_values(form: ProcessorForm) -> None:
    """Half a megabyte in a value, a list and a map."""
    on = bench(
        theirs.LargeValues(form),
        form,
        "id string, valueStateResult string, listStateResult string, mapStateResult string",
    )
    large = "a" * 512 * 1024
    [row] = on.rows(readings([("0", 123)]))
    assert list(row.values()) == ["0", large, f"{large},{large}b,{large}c", f"large_string_key:{large}"]


def evolved(
    on: TimedBench | None, form: ProcessorForm, processor: Any, batch: list[tuple[str, int]]
) -> tuple[TimedBench, Any]:
    """Run a batch on the state that the version before has left; return what the first row has for a value."""
    schema = pa.schema([("id", pa.string()), ("value", pa.struct(list(arrow_schema(processor.schema))))])
    made = TimedBench(Process(processor=processor, key_columns=("id",), form=form, schema=schema))
    made.kept = {} if on is None else dict(on.kept)
    return made, made.rows(readings(batch))[0]["value"]


@FORMS
def test_schema_evolution_scenarios(form: ProcessorForm) -> None:
    """Fields are added, removed, reordered and widened, one version after the other."""
    on, value = evolved(None, form, theirs.TwoFields(form), FIRST)
    assert value == {"id": 0, "name": "name-0"}
    on, value = evolved(on, form, theirs.MoreFields(form), SECOND)
    assert value == {"id": 0, "name": "name-0", "count": None, "active": None, "score": None}
    on, value = evolved(on, form, theirs.FewerFields(form), THIRD)
    assert value == {"id": 0, "name": "name-00"}
    on, value = evolved(on, form, theirs.OtherOrder(form), THIRD)
    assert (value["name"], value["id"]) == ("name-00", 0)
    on, value = evolved(on, form, theirs.WiderField(form), THIRD)
    assert value == {"id": 1, "name": "name-0"}


@FORMS
def test_schema_evolution_fails(form: ProcessorForm) -> None:
    """A field that was widened cannot become narrower again."""
    on, value = evolved(None, form, theirs.MoreFields(form), FIRST)
    assert (value["count"], value["active"]) == (100, True)
    on, value = evolved(on, form, theirs.WiderField(form), SECOND)
    assert value["name"] == "name-0"
    with pytest.raises(
        StoreError, match=r"STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION.*Schema evolution is not possible"
    ):
        evolved(on, form, theirs.TwoFields(form), THIRD)


@FORMS
def test_not_nullable_fails(form: ProcessorForm) -> None:
    """A field that may not be null would stand in the way of every other version."""
    with pytest.raises(
        PySparkRuntimeError, match=r"TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE.*state 'state' must be"
    ):
        evolved(None, form, theirs.TwoStrictFields(form), FIRST)


@FORMS
def test_int_to_decimal_coercion(form: ProcessorForm) -> None:
    """A whole number is a decimal without being told so, where it has room; else the value and its type are told."""

    def decimals(number: Any, schema: str = "id string, decimal_result decimal(10,2)") -> Any:
        return bench(theirs.Telling(form, number), form, schema).rows(readings(THIRD))[0]["decimal_result"]

    for number in (12345, np.int32(12345), np.int64(12345)):
        assert decimals(number) == Decimal("12345.00")
    assert decimals(10**17, "id string, decimal_result decimal(38,18)") == Decimal(10**17)
    assert decimals(None) is None
    with pytest.raises(WrongResult, match=r"declared as decimal\(10,2\): 123456789012 \(int\) is not one"):
        decimals(123456789012)
    with pytest.raises(WrongResult, match=r"declared as decimal\(10,2\): 'x' \(str\) is not one"):
        decimals("x")


def test_records_limit() -> None:
    """With `rows_per_frame`, what `maxRecordsPerBatch` is in Spark; of DataFrames alone."""
    check_frames("rows_per_frame", ((1, (2, 2), (3, 2)), (2, (1, 1), (2, 1)), (None, (1, 1), (1, 1))))


def test_bytes_limit() -> None:
    """With `bytes_per_frame`, what `maxBytesPerBatch` is in Spark: by the size that rows have on average."""
    check_frames("bytes_per_frame", ((2, (2, 2), (3, 2)), (100_000, (1, 1), (1, 1))))


def check_frames(name: str, cases: Any) -> None:
    """Look in how many DataFrames the rows of two batches come, under several limits, with an initial state and not."""
    for limit, first, second in cases:
        for more in ({}, {"initial_state": INITIAL}):
            on = bench(theirs.Frames("pandas"), "pandas", "id string, chunkCount int", **{name: limit}, **more)
            assert pairs(on.rows(readings(FIRST)), "id", "chunkCount") == list(zip("01", first, strict=True))
            assert pairs(on.rows(readings(SECOND)), "id", "chunkCount") == list(zip("01", second, strict=True))
    none: dict[str, Any] = {name: 0}
    with pytest.raises(hw.FlowError, match=f"{name}=0"):
        bench(theirs.Frames("pandas"), "pandas", "id string", **none)
