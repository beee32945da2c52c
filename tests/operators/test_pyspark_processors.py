"""PySpark's own processors run unchanged, and make what PySpark's tests and documentation say they make."""

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from headwater.operators.processors.processing import Process
from headwater.operators.processors.spark_types import arrow_schema
from tests.operators import pyspark_processors as theirs
from tests.operators.timed_bench import TimedBench

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


def bench(processor: Any, form: str, schema: str, mode: str = "none", **more: Any) -> TimedBench:
    """Return a processor on the bench."""
    config = {"key_columns": ("id",), "form": form, "time_mode": mode, "schema": arrow_schema(schema), **more}
    made = TimedBench(Process(processor=processor, **config))
    made.now_us = START_US
    return made


def pairs(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return some columns."""
    return [tuple(row[name] for name in names) for row in rows]


COUNTS = "id string, countAsString string"


@pytest.mark.parametrize(
    ("processor", "form", "mode"),
    [
        (theirs.PandasViolations(), "pandas", "none"),
        (theirs.RowViolations(), "rows", "none"),
        (theirs.PandasViolationsForAWhile(), "pandas", "processingtime"),
        (theirs.RowViolationsForAWhile(), "rows", "processingtime"),
    ],
)
def test_violations_are_counted_from_batch_to_batch(processor: Any, form: str, mode: str) -> None:
    """test_transform_with_state_basic and test_value_state_ttl_basic."""
    on = bench(processor, form, COUNTS, mode)
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == [("0", "2"), ("1", "2")]
    assert pairs(on.rows(readings(SECOND)), "id", "countAsString") == [("0", "3"), ("1", "2")]
    peeked = bench(PeekViolations(form), form, "id string, violations int", mode, key_columns=("id",))
    peeked.kept = dict(on.kept)
    assert pairs(peeked.rows(readings(THIRD)), "id", "violations") == [("0", 4), ("1", 3)]


class PeekViolations(theirs.InBothForms):
    """Tells what was kept."""

    def init(self, handle: Any) -> None:
        self.violations = handle.getValueState("numViolations", "value int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        yield self.made(id=key[0], violations=self.violations.get()[0])


@FORMS
@pytest.mark.parametrize(
    ("processor", "mode", "counts"),
    [
        (theirs.NoValue, "none", [("0", "0"), ("1", "0")]),
        (theirs.Lists, "processingtime", [("0", "2"), ("1", "2")]),
        (theirs.ListsForAWhile, "processingtime", [("0", "2"), ("1", "2")]),
        (theirs.Maps, "none", [("0", "2"), ("1", "2")]),
        (theirs.MapsForAYear, "processingtime", [("0", "2"), ("1", "2")]),
    ],
)
def test_values_lists_and_maps_do_what_they_do_in_spark(form: str, processor: Any, mode: str, counts: Any) -> None:
    """test_transform_with_state_non_exist_value_state, _list_state, _list_state_large_ttl, _map_state, and its TTL."""
    on = bench(processor(form), form, COUNTS, mode)
    assert pairs(on.rows(readings(FIRST)), "id", "countAsString") == counts


@FORMS
def test_a_list_grows_by_put_and_by_append(form: str) -> None:
    """test_transform_with_state_list_state_large_list."""
    on = bench(theirs.GrowingList(form), form, "id string, prevElements string, updatedElements string")
    hundred, more = (",".join(map(str, range(size))) for size in (100, 190))
    columns = ("id", "prevElements", "updatedElements")
    assert pairs(on.rows(readings(FIRST)), *columns) == [("0", "", hundred), ("1", "", hundred)]
    assert pairs(on.rows(readings(SECOND)), *columns) == [("0", hundred, more), ("1", hundred, more)]


@FORMS
def test_what_outlives_its_time_is_gone_unless_renewed(form: str) -> None:
    """test_value_state_ttl_expiration: six seconds between batches, ten to live; key 0 does not renew in the second."""
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
def test_a_timer_by_the_clock_takes_the_count_back(form: str) -> None:
    """test_transform_with_state_in_pandas_proc_timer, with the timer's batch between the others."""
    on = bench(theirs.ByTheClock(form), form, "id string, countAsString string, timeValues string", "processingtime")
    now_ms = START_US // 1000
    columns = ("id", "countAsString", "timeValues")
    assert pairs(on.rows(readings(THIRD)), *columns) == [("0", "1", str(now_ms)), ("1", "1", str(now_ms))]
    assert on.clock(START_US + 999) == []
    assert pairs(on.clock(START_US + 5_000), *columns) == [("0", "-1", str(now_ms + 1))]
    made = on.rows(readings(FIRST))
    assert pairs(made, *columns) == [("0", "2", str(now_ms + 5)), ("1", "3", str(now_ms + 5))]
    assert pairs(on.clock(START_US + 7_000), *columns) == [("0", "-1", str(now_ms + 6))]
    assert pairs(on.rows(readings(SECOND)), "id", "countAsString") == [("0", "3"), ("1", "5")]


def at_seconds(*seconds: int) -> pa.RecordBatch:
    """Return rows of key a with these event times."""
    times = pa.array([second * SECOND_US for second in seconds], pa.timestamp("us", "UTC"))
    return pa.record_batch({"id": ["a"] * len(seconds), "eventTime": times})


@pytest.mark.parametrize(
    ("processor", "form"), [(theirs.PandasByEventTime(), "pandas"), (theirs.RowByEventTime(), "rows")]
)
def test_a_timer_at_the_watermark_fires_at_once(processor: Any, form: str) -> None:
    """test_transform_with_state_in_pandas_event_time: the timer of each batch forgets the maximum."""
    on = bench(processor, form, "id string, timestamp string", "eventtime")
    columns = ("id", "timestamp")
    assert pairs(on.rows(at_seconds(20)), *columns) == [("a", "20")]
    assert pairs(on.clock(START_US), *columns) == [("a-expired", "0")]
    assert on.watermark(10 * SECOND_US) == []
    assert pairs(on.rows(at_seconds(4)), *columns) == [("a", "4")]
    assert pairs(on.clock(START_US), *columns) == [("a-expired", "10000")]
    assert pairs(on.rows(at_seconds(11, 13, 15)), *columns) == [("a", "15")]
    assert pairs(on.clock(START_US), *columns) == [("a-expired", "10000")]
    assert on.clock(START_US) == []


INITIAL = pa.table({"id": ["0", "3"], "initVal": pa.array([789, 987], pa.int32())})


@FORMS
def test_an_initial_state_is_given_once_before_the_first_rows(form: str) -> None:
    """test_transform_with_state_init_state: also of keys that have no rows yet."""
    on = bench(theirs.Adding(form), form, "id string, value string", initial_state=INITIAL)
    assert pairs(on.rows(readings(FIRST)), "id", "value") == [("0", str(789 + 123 + 46)), ("1", str(146 + 346))]
    made = on.rows(readings([("0", 67), ("3", 12)]))
    assert pairs(made, "id", "value") == [("0", str(789 + 123 + 46 + 67)), ("3", str(987 + 12))]


@FORMS
def test_keys_of_several_columns_may_stand_anywhere_among_the_others(form: str) -> None:
    """test_transform_with_state_non_contiguous_grouping_cols_with_init_state."""
    initial = pa.table({"initVal": pa.array([789, 987], pa.int32()), "id1": ["0", "3"], "id2": ["1", "2"]})
    rows = pa.record_batch(
        {"id1": ["0", "0", "1", "1"], "temperature": pa.array([123, 46, 146, 346]), "id2": ["1", "1", "2", "2"]}
    )
    more = {"key_columns": ("id1", "id2"), "initial_state": initial}
    on = bench(theirs.Adding(form), form, "id1 string, id2 string, value string", **more)
    made = on.rows(rows)
    assert pairs(made, "id1", "id2", "value") == [("0", "1", str(789 + 123 + 46)), ("1", "2", str(146 + 346))]


@FORMS
def test_timers_of_the_initial_state_fire_for_keys_without_rows_too(form: str) -> None:
    """test_transform_with_state_init_state_with_timers."""
    on = bench(theirs.AddingWithTimers(form), form, "id string, value string", "processingtime", initial_state=INITIAL)
    assert pairs(on.rows(readings(FIRST)), "id", "value") == [("0", str(789 + 123 + 46)), ("1", str(146 + 346))]
    assert sorted(pairs(on.clock(START_US), "id")) == [("0-expired",), ("3-expired",)]
    assert pairs(on.rows(readings([("0", 67), ("3", 12)])), "id") == [("0",), ("3",)]
    assert on.clock(START_US + SECOND_US) == []


@FORMS
def test_all_rows_of_a_key_s_initial_state_are_given(form: str) -> None:
    """As one DataFrame, or row by row."""
    initial = pa.table({"id": ["0", "3", "0"], "initVal": pa.array([1, 2, 3], pa.int32())})
    on = bench(theirs.ListOfInitialState(form), form, "id string, value string", initial_state=initial)
    assert pairs(on.rows(readings(THIRD)), "id", "value") == [("0", "1,3"), ("1", "")]


@FORMS
def test_lists_dicts_and_named_tuples_are_kept_within_values(form: str) -> None:
    """test_transform_with_state_with_composite_type, twice the same key."""
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
def test_lists_maps_and_structs_come_out(form: str) -> None:
    """test_transform_with_state_with_composite_output, with the schema as DDL."""
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
def test_large_values_are_kept(form: str) -> None:
    """test_transform_with_state_large_values."""
    on = bench(
        theirs.LargeValues(form),
        form,
        "id string, valueStateResult string, listStateResult string, mapStateResult string",
    )
    large = "a" * 512 * 1024
    [row] = on.rows(readings([("0", 123)]))
    assert list(row.values()) == ["0", large, f"{large},{large}b,{large}c", f"large_string_key:{large}"]


@FORMS
def test_scores_words_and_counts_go_on_from_batch_to_batch(form: str) -> None:
    """The processors of PySpark's TwsTester."""
    scores = bench(theirs.TopK(form), form, "key string, score double", key_columns=("key",))
    assert pairs(scores.rows([{"key": "a", "score": score} for score in (2.0, 9.0, 4.0)]), "score") == [(9.0,), (4.0,)]
    assert pairs(scores.rows([{"key": "a", "score": 5.0}]), "score") == [(9.0,), (5.0,)]
    words = bench(theirs.WordFrequency(form), form, "key string, word string, count bigint", key_columns=("key",))
    assert pairs(words.rows([{"key": "a", "word": one} for one in "hwh"]), "word", "count") == [
        ("h", 1),
        ("w", 1),
        ("h", 2),
    ]
    assert pairs(words.rows([{"key": "b", "word": "h"}, {"key": "a", "word": "h"}]), "count") == [(1,), (3,)]
    initial = pa.table({"key": ["a"], "initial_count": pa.array([10])})
    more = {"key_columns": ("key",), "initial_state": initial}
    counts = bench(theirs.RunningCount(form), form, "key string, count int", **more)
    assert pairs(counts.rows([{"key": one} for one in "aba"]), "key", "count") == [("a", 12), ("b", 1)]


@FORMS
def test_a_session_ends_ten_seconds_after_its_last_row(form: str) -> None:
    """The timer of an earlier row is deleted by a later one."""
    on = bench(theirs.SessionTimeout(form), form, "key string, result string", "processingtime", key_columns=("key",))
    on.rows([{"key": "a", "value": "1"}, {"key": "b", "value": "2"}])
    on.clock(START_US + 4 * SECOND_US)
    assert pairs(on.rows([{"key": "a", "value": "3"}]), "result") == [("received:3",)]
    assert pairs(on.clock(START_US + 10 * SECOND_US), "key", "result") == [("b", "session-expired")]
    assert on.clock(START_US + 14 * SECOND_US - 1) == []
    assert pairs(on.clock(START_US + 14 * SECOND_US), "key", "result") == [("a", "session-expired")]
    assert on.clock(START_US + 100 * SECOND_US) == []


@FORMS
def test_a_session_of_event_time_ends_by_the_watermark(form: str) -> None:
    """And tells it."""
    on = bench(theirs.EventTimeSession(form), form, "key string, result string", "eventtime", key_columns=("key",))
    on.rows([{"key": "a", "event_time_ms": 10_000, "value": 1}, {"key": "a", "event_time_ms": 12_000, "value": 2}])
    assert on.watermark(16_999_999) == []
    assert pairs(on.watermark(17_000_000), "result") == [("session-expired@watermark=17000",)]
    assert on.watermark(99_000_000) == []


def test_a_silent_sensor_is_told_every_ten_seconds() -> None:
    """The example of Spark's documentation: a timer registers the next one."""
    on = bench(theirs.Downtime(), "pandas", "id string, timeValues string", "processingtime")
    on.rows(pa.record_batch({"id": ["s"], "timestamp": pa.array([START_US], pa.timestamp("us", "UTC"))}))
    made = [row for second in range(40) for row in on.clock(START_US + second * SECOND_US)]
    assert pairs(made, "timeValues") == [("5000",), ("15000",), ("25000",), ("35000",)]
    on.rows(pa.record_batch({"id": ["s"], "timestamp": pa.array([START_US + 40_000_000], pa.timestamp("us", "UTC"))}))
    assert pairs(on.clock(START_US + 50 * SECOND_US), "timeValues") == [("10000",)]


commands = st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(sorted(theirs.COMMANDS))), max_size=8))


@FORMS
@settings(max_examples=60, deadline=None)
@given(batches=commands)
def test_whatever_is_done_to_state_has_the_same_effect_as_in_pyspark_s_own_tester(form: str, batches: Any) -> None:
    """`TwsTester` keeps its state in dicts."""
    tester = TwsTester(theirs.AllMethods("rows"))
    on = bench(theirs.AllMethods(form), form, "key string, result string", key_columns=("key",))
    for batch in filter(None, batches):
        made = on.rows([{"key": key, "cmd": command} for key, command in batch])
        for key in dict(batch):
            expected = tester.test(key, [Row(cmd=command) for one, command in batch if one == key])
            assert [row["result"] for row in made if row["key"] == key] == [row.result for row in expected]


def test_times_are_told_in_utc_whatever_zone_the_column_has() -> None:
    """PySpark's DataFrames have times without a zone, its rows have times with one."""
    seen: list[Any] = []

    class Note(theirs.InBothForms):
        def init(self, handle: Any) -> None:
            """Need nothing."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            seen.extend([key, *self.each(rows)])
            return iter(())

    berlin = pa.timestamp("ms", "Europe/Berlin")
    batch = pa.record_batch({"id": pa.array([0], berlin), "plain": pa.array([1], pa.timestamp("s"))})
    bench(Note("pandas"), "pandas", "id int").rows(batch)
    assert [seen[0][0], *seen[1]] == [pd.Timestamp(0), pd.Timestamp(0), pd.Timestamp(1, unit="s")]
    seen.clear()
    bench(Note("rows"), "rows", "id int").rows(batch)
    instant = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert [seen[0][0], *seen[1]] == [instant, instant, pd.Timestamp(1, unit="s")]
