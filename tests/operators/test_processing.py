"""Processors on the bench: order, time, timers, what comes out, and state that can be moved in the middle."""

# ruff: noqa: N802, N803 - PySpark's names

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headwater.model.entries import EVERY_GROUP, group_of_entry
from headwater.model.errors import FlowError
from headwater.model.keys import KEY_GROUPS, encode_key, group_of
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment
from headwater.operators.functions import WrongResult
from headwater.operators.processors.processing import LAST_WATERMARK_MS, Process, form_of_processor
from headwater.operators.processors.processor_entries import EXPIRIES
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.state import OperatorState
from tests.operators.pyspark_processors import (
    AddingWithTimers,
    InBothForms,
    RunningCount,
    SessionTimeout,
    WordFrequency,
)
from tests.operators.timed_bench import DictStore, TimedBench

FORMS = pytest.mark.parametrize("form", ["pandas", "rows"])


class Scripted(InBothForms):
    """Tells each call; registers and deletes the timers that a row or `on_expiry` names."""

    on_expiry: dict[int, dict[str, list[int]]] = {}  # noqa: RUF012 - read only

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "at bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        given = list(self.each(rows))
        for row in given:
            for expiry_ms in row.timers:
                self.handle.registerTimer(expiry_ms)
        yield self._told("rows", key, timerValues, len(given))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        todo = self.on_expiry.get(expiry_ms, {})
        for other in todo.get("delete", []):
            self.handle.deleteTimer(other)
        for other in todo.get("register", []):
            self.handle.registerTimer(other)
        yield self._told("timer", key, timerValues, expiry_ms)

    def _told(self, what: str, key: Any, times: Any, number: int) -> Any:
        left = ",".join(map(str, self.handle.listTimers()))
        return self.made(
            what=what,
            key=key[0],
            number=number,
            now=times.getCurrentProcessingTimeInMs(),
            watermark=times.getCurrentWatermarkInMs(),
            left=left,
        )


TOLD = arrow_schema("what string, key string, number bigint, now bigint, watermark bigint, left string")


def scripted(form: str, mode: str = "eventtime", **more: Any) -> TimedBench:
    """Return the scripted processor on the bench."""
    config: dict[str, Any] = {"form": form, "time_mode": mode, "schema": TOLD, **more}
    return TimedBench(Process(processor=Scripted(form), key_columns=("k",), **config))


def timers(**of_keys: list[int]) -> pa.RecordBatch:
    """Return a row for each key that registers timers."""
    kept = pa.array(list(of_keys.values()), pa.list_(pa.int64()))
    return pa.record_batch({"k": pa.array(list(of_keys)), "timers": kept})


def fired(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return whose timers fired, and which."""
    assert all(row["what"] == "timer" for row in rows)
    return [(row["key"], row["number"]) for row in rows]


@FORMS
def test_a_processor_is_called_once_for_each_key_of_a_batch_in_order_of_appearance(form: str) -> None:
    """With all of the key's rows."""
    on = scripted(form)
    made = on.rows([{"k": key, "timers": [9]} for key in ("b", "a", "b", "c", "a", "b")])
    assert [(row["key"], row["number"]) for row in made] == [("b", 3), ("a", 2), ("c", 1)]


@FORMS
def test_the_rows_of_a_key_come_in_order_of_arrival_with_all_columns(form: str) -> None:
    """In DataFrames with an index of their own, which may be written to."""
    seen: list[Any] = []

    class Note(InBothForms):
        def init(self, handle: Any) -> None:
            """Need nothing."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            for one in rows:
                if form == "pandas":
                    assert list(one.columns) == ["n", "k"]
                    assert list(one.index) == list(range(len(one)))
                    one["new"] = 1
                    one.loc[0, "n"] += 0
                seen.extend(one["n"].tolist() if form == "pandas" else [(key[0], one.k, one["n"])])
            return iter(())

    batch = pa.record_batch({"n": pa.array([3, 1, 2, 5, 4], pa.int32()), "k": ["x", "y", "x", "y", "x"]})
    config: dict[str, Any] = {"form": form, "schema": TOLD}
    TimedBench(Process(processor=Note(form), key_columns=("k",), **config)).rows(batch)
    expected = {"pandas": [3, 2, 4, 1, 5], "rows": [("x", "x", n) for n in (3, 2, 4)] + [("y", "y", n) for n in (1, 5)]}
    assert seen == expected[form]


@pytest.mark.parametrize(
    ("column", "dtype", "value"),
    [
        (pa.array([1, 2], pa.int8()), "int64", 1),
        (pa.array([1, None], pa.int32()), "float64", 1.0),
        (pa.array([1.5, 2], pa.float32()), "float64", 1.5),
        (pa.array([True, None]), "object", True),
        (pa.array(["é", None]), "object", "é"),
        (pa.array(["é", "b"]).dictionary_encode(), "object", "é"),
        (pa.array([1_000, 2_000], pa.timestamp("ms", "Asia/Tokyo")), "datetime64[ns]", pd.Timestamp(1, unit="s")),
        (pa.array([1, 2], pa.timestamp("us")), "datetime64[ns]", pd.Timestamp(1, unit="us")),
        (pa.array([1, 2], pa.duration("s")), "timedelta64[ns]", pd.Timedelta("1s")),
        (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "object", {"a": 1}),
        (pa.array([{"x": 1}, None]), "object", {"x": 1}),
    ],
    ids=lambda given: str(getattr(given, "type", "")) or None,
)
def test_dataframes_have_the_types_that_pyspark_gives_them(column: pa.Array, dtype: str, value: Any) -> None:
    """As seen on PySpark 4.3 with the session's time zone at UTC."""
    seen: list[Any] = []

    class Note(StatefulProcessor):
        def init(self, handle: Any) -> None:
            """Need nothing."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            seen.extend(rows)
            return iter(())

    batch = pa.record_batch({"k": [1, 1], "c": column})
    TimedBench(Process(processor=Note(), key_columns=("k",), schema=TOLD)).rows(batch)
    assert (str(seen[0]["c"].dtype), seen[0]["c"][0]) == (dtype, value)


def test_times_beyond_nanoseconds_are_given_as_far_as_pandas_can() -> None:
    """Nanoseconds end in 2262."""
    seen: list[Any] = []

    class Note(StatefulProcessor):
        def init(self, handle: Any) -> None:
            """Need nothing."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            seen.extend(rows)
            return iter(())

    far = pa.array([2**57, -(2**56)], pa.timestamp("us", "UTC"))
    TimedBench(Process(processor=Note(), key_columns=("k",), schema=TOLD)).rows(
        pa.record_batch({"k": [1, 2], "t": far})
    )
    assert [frame["t"][0].year for frame in seen] == [6536, -314]


@FORMS
@pytest.mark.parametrize(
    ("column", "key"),
    [
        (pa.array(["é" * 700, None]), ["é" * 700, None]),
        (pa.array([1.0, -0.0]), [1.0, 0.0]),
        (pa.array([1, 2], pa.int16()), [1, 2]),
        (pa.array([True, False]), [True, False]),
        (pa.array(["1.50", "2.00"]).cast(pa.decimal128(5, 2)), None),
        (pa.array([0, 1], pa.date32()), None),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ],
    ids=lambda given: str(getattr(given, "type", "")) or None,
)
def test_a_timer_has_the_key_that_its_rows_had(form: str, column: pa.Array, key: Any) -> None:
    """Of the same type, though a key's bytes say only that 1.0 and 1 are equal; however long it is."""
    seen: list[Any] = []

    class Note(InBothForms):
        def init(self, handle: Any) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            self.handle.registerTimer(5)
            seen.append(key)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            seen.append(key)
            return iter(())

    config: dict[str, Any] = {"form": form, "time_mode": "processingtime", "schema": TOLD}
    on = TimedBench(Process(processor=Note(form), key_columns=("k",), **config))
    on.rows(pa.record_batch({"k": column, "n": [1, 2]}))
    on.clock(5_000)
    given = [(one,) for one in (column.to_pylist() if key is None else key)]
    assert seen[:2] == given
    assert sorted(map(repr, seen[2:])) == sorted(map(repr, given))
    assert [one for one in on.kept if group_of_entry(one) != EVERY_GROUP] == []


@FORMS
def test_a_batch_of_nulls_does_not_make_the_keys_types_forgotten(form: str) -> None:
    """Where types are inferred from rows, the key of such a batch has none."""
    on = scripted(form)
    on.rows(timers(a=[5]))
    on.rows(pa.record_batch({"k": pa.nulls(1), "timers": pa.array([[6]])}))
    assert fired(on.watermark(9_000)) == [("a", 5), (None, 6)]


@FORMS
def test_timers_fire_in_order_of_time_and_each_once(form: str) -> None:
    """Up to and including the watermark."""
    on = scripted(form)
    on.rows(timers(a=[30, 10], b=[20, 31]))
    assert on.watermark(9_999) == []
    assert fired(on.watermark(30_000)) == [("a", 10), ("b", 20), ("a", 30)]
    assert fired(on.watermark(31_000)) == [("b", 31)]
    assert on.watermark(99_000_000) == []


@FORMS
def test_a_timer_by_the_clock_asks_to_be_woken(form: str) -> None:
    """For the earliest of all keys."""
    on = scripted(form, "processingtime")
    on.now_us = 1_000_000
    on.rows(timers(a=[3_000, 2_000], b=[2_500]))
    assert waking(on) == 2_000_000
    assert on.clock(1_999_999) == []
    assert fired(on.clock(2_600_000)) == [("a", 2_000), ("b", 2_500)]
    assert waking(on) == 3_000_000


def waking(on: TimedBench) -> int | None:
    """Return when a bench's operator wants to be woken."""
    return on.operator.open().wake_us(on._moment())


@FORMS
def test_a_timer_that_is_past_when_it_is_registered_fires_at_once(form: str) -> None:
    """Without waiting for the watermark to rise."""
    on = scripted(form)
    on.watermark(50_000)
    on.now_us = 7
    on.rows(timers(a=[50, 20, 51]))
    assert waking(on) == 7
    assert fired(on.clock(7)) == [("a", 20), ("a", 50)]
    assert waking(on) is None


@FORMS
def test_times_are_minus_one_without_a_time_mode(form: str) -> None:
    """And timers are refused; in event time the watermark is 0 until it is known."""
    on = scripted(form, "none")
    with pytest.raises(Exception, match="Error register timer: timers need timeMode"):
        on.rows(timers(a=[5]))
    with pytest.raises(Exception, match="Error listing timers"):
        on.rows(timers(a=[]))
    for mode in ("eventtime", "processingtime"):
        on = scripted(form, mode)
        on.now_us = 5_999
        [row] = on.rows(timers(a=[77]))
        assert (row["now"], row["watermark"], row["left"]) == (5, 0, "77")


@FORMS
def test_what_a_timer_does_to_other_timers_counts_the_next_time(form: str) -> None:
    """As on Spark 4.3: one deleted while it is due still fires; one registered meanwhile waits, even if it is past."""
    on = scripted(form)
    script = {3: {"delete": [4]}, 5: {"register": [5, 6]}, 1000: {"register": [999, 1001]}}
    on.operator.processor.on_expiry = script  # type: ignore[attr-defined]
    on.rows(timers(a=[3, 4, 5, 1000]))
    first = on.watermark(2_000_000)
    assert fired(first) == [("a", 3), ("a", 4), ("a", 5), ("a", 1000)]
    assert [row["left"] for row in first] == ["3,5,1000", "5,1000", "5,6,1000", "6,999,1000,1001"]
    assert fired(on.clock(0)) == [("a", 6), ("a", 999), ("a", 1001)]
    assert on.clock(0) == []


@FORMS
@pytest.mark.parametrize("mode", ["eventtime", "processingtime"])
def test_at_the_end_all_timers_fire_and_new_ones_never_do(form: str, mode: str) -> None:
    """Nothing would wake the processor later; one that always registers the next would run for ever."""
    on = scripted(form, mode)
    on.operator.processor.on_expiry = {10**15: {"register": [10**15 + 1]}}  # type: ignore[attr-defined]
    on.rows(timers(a=[10**15, 70], b=[80]))
    made = on.end()
    assert fired(made) == [("a", 70), ("b", 80), ("a", 10**15)]
    assert {row["watermark"] for row in made} == {LAST_WATERMARK_MS}
    assert waking(on) is None
    assert [one for one in on.kept if group_of_entry(one) != EVERY_GROUP] == []


@FORMS
def test_rows_whose_time_the_watermark_has_reached_are_late(form: str) -> None:
    """In event time, by Spark's rule; rows without a time are not."""
    on = scripted(form, event_time="t")
    times = pa.array([4_999_999, 5_000_000, None, 5_000_001], pa.timestamp("us"))
    batch = timers(a=[], b=[], c=[], d=[]).append_column("t", times)
    assert len(on.rows(batch)) == 4
    on.watermark(5_000_000)
    assert [row["key"] for row in on.rows(batch)] == ["c", "d"]
    assert [row["k"] for row in on.out["late"]] == ["a", "b"]
    assert on.rows(batch.slice(0, 2)) == []
    with pytest.raises(WrongResult, match="column 't' is a int64 and no event time"):
        on.rows([{"k": "a", "timers": [], "t": 5}])


def test_late_rows_keep_their_columns() -> None:
    """The other port has what was declared."""
    operator = scripted("rows").operator
    schema = pa.schema([("k", pa.string())])
    assert [operator.port_schema(port, [schema]) for port in operator.ports] == [TOLD, schema]
    assert operator.output_schema([None]) == TOLD


@FORMS
def test_two_opened_processors_share_nothing(form: str) -> None:
    """What one keeps in itself is its own, and neither writes into the flow's."""
    config: dict[str, Any] = {"form": form, "schema": arrow_schema("key string, count bigint")}
    operator = Process(processor=InstanceCount(form), key_columns=("key",), **config)
    batch = pa.RecordBatch.from_pylist([{"key": "a"}])
    one, two = operator.open(), operator.open()
    results = [logic.rows(batch, 0, Moment(OperatorState(DictStore({}))))[0] for logic in (one, one, two)]
    assert [result.to_pylist()[0]["count"] for result in results if result is not None] == [1, 2, 1]
    assert not hasattr(operator.processor, "count")


class InstanceCount(InBothForms):
    """Counts in itself, and shows when it is initialised and closed."""

    calls: list[str] = []  # noqa: RUF012 - shared on purpose

    def init(self, handle: Any) -> None:
        self.count = 0
        self.calls.append("init")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.count += 1
        if key[0] == "bad":
            raise ValueError("bad")
        yield self.made(key=key[0], count=self.count)

    def close(self) -> None:
        self.calls.append("close")


def test_a_processor_is_initialised_once_and_closed_at_the_end() -> None:
    """After an error it begins anew."""
    InstanceCount.calls.clear()
    config: dict[str, Any] = {"form": "rows", "schema": arrow_schema("key string, count bigint")}
    logic = Process(processor=InstanceCount("rows"), key_columns=("key",), **config).open()

    def run(key: str) -> list[Any]:
        made = logic.rows(pa.RecordBatch.from_pylist([{"key": key}]), 0, Moment(OperatorState(DictStore({}))))[0]
        return [] if made is None else [row["count"] for row in made.to_pylist()]

    assert (run("a"), run("a")) == ([1], [2])
    with pytest.raises(ValueError, match="bad"):
        run("bad")
    assert run("a") == [1]
    logic.advance(Moment(OperatorState(DictStore({})), watermark_us=END_OF_TIME))
    assert InstanceCount.calls == ["init", "init", "close"]


def test_a_call_that_raises_changes_no_state() -> None:
    """Not even for the keys before it."""
    config: dict[str, Any] = {"form": "rows", "schema": arrow_schema("key string, count int")}
    on = TimedBench(Process(processor=Failing("rows"), key_columns=("key",), **config))
    on.rows([{"key": "a"}])
    kept = dict(on.kept)
    state = OperatorState(DictStore(on.kept))
    batch = pa.RecordBatch.from_pylist([{"key": "a"}, {"key": "bad"}])
    with pytest.raises(ValueError, match="bad"):
        on.operator.open().rows(batch, 0, Moment(state))
    assert (state.changes, on.kept) == ({}, kept)


class Failing(RunningCount):
    """Counts rows, and fails at a key."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from super().handleInputRows(key, rows, timerValues)
        if key[0] == "bad":
            raise ValueError("bad")


def returning(form: str, answer: Any, schema: str = "id string, n int") -> list[dict[str, Any]]:
    """Return what comes out of a processor that returns this."""

    class Returning(InBothForms):
        def init(self, handle: Any) -> None:
            """Need nothing."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return answer

    config: dict[str, Any] = {"form": form, "schema": arrow_schema(schema)}
    return TimedBench(Process(processor=Returning(form), key_columns=("k",), **config)).rows([{"k": 1}])


@pytest.mark.parametrize(
    ("form", "answer", "sentence"),
    [
        ("pandas", 5, "handleInputRows returned a int; it must return an iterator of DataFrames"),
        ("pandas", pd.DataFrame({"id": ["a"], "n": [1]}), "returned a DataFrame; it must return an iterator"),
        ("pandas", [Row(id="a", n=1)], "yielded a Row; a pandas processor yields DataFrames"),
        ("pandas", [pd.DataFrame({"id": ["a"]})], "a DataFrame without column 'n' of the declared schema"),
        ("pandas", [pd.DataFrame([["a", 1, 1]], columns=["id", "n", "n"])], "with two columns of the same name"),
        ("pandas", [pd.DataFrame([["a"]])], "yielded 1 columns, but 2 are declared"),
        ("pandas", [pd.DataFrame({"id": ["a"], "n": ["x"]})], "does not fit column 'n', declared as int32"),
        ("pandas", [pd.DataFrame({"id": [1], "n": [1]})], "does not fit column 'id', declared as string"),
        ("pandas", [pd.DataFrame({"id": ["a"], "n": [2**40]})], "does not fit column 'n', declared as int32"),
        ("pandas", [pd.DataFrame({"id": ["a"], "n": [1.5]})], "does not fit column 'n', declared as int32"),
        ("rows", 5, "handleInputRows returned a int; it must return an iterator of rows"),
        ("rows", [("a", 1)], "yielded ('a', 1); a row processor yields rows, such as Row(id=1)"),
        ("rows", [Row("a", "b")], "a row processor yields rows, such as Row(id=1)"),
        ("rows", [Row(id="a", n="x")], "does not fit column 'n', declared as int32"),
        ("rows", [Row(id="a", n=2**40)], "does not fit column 'n', declared as int32"),
    ],
)
def test_what_does_not_fit_the_declared_schema_is_explained(form: str, answer: Any, sentence: str) -> None:
    """By the column, the method and what it should be."""
    with pytest.raises(WrongResult) as refusal:
        returning(form, answer)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("form", "answer", "rows"),
    [
        ("pandas", None, []),
        ("pandas", [], []),
        ("pandas", [pd.DataFrame()], []),
        ("pandas", [pd.DataFrame({"n": [1.0, None], "id": ["a", None], "more": [1, 2]})], [("a", 1), (None, None)]),
        ("pandas", [pd.DataFrame([["a", 1, "more"]])], [("a", 1)]),
        (
            "pandas",
            [pd.DataFrame({"id": ["a"], "n": [1]}), pd.DataFrame({"id": ["b"], "n": [2.0]})],
            [("a", 1), ("b", 2)],
        ),
        ("pandas", [pd.DataFrame({"id": pd.Categorical(["a"]), "n": pd.array([None], "Int64")})], [("a", None)]),
        ("rows", [], []),
        ("rows", [Row(n=1, id="a", more=2), Row(id="b")], [("a", 1), ("b", None)]),
        ("rows", [{"id": "a", "n": 1}], [("a", 1)]),
    ],
)
def test_columns_are_found_by_name_and_what_is_not_declared_is_left_out(form: str, answer: Any, rows: Any) -> None:
    """As in PySpark; without names by place."""
    assert [(row["id"], row["n"]) for row in returning(form, answer)] == rows


def test_nulls_are_refused_where_none_are_declared() -> None:
    """By name."""
    for form, answer in (("rows", [Row(id=None)]), ("pandas", [pd.DataFrame({"id": [None]})])):
        with pytest.raises(WrongResult, match="nulls in column 'id', which is declared without"):
            returning(form, answer, "id string not null")


def test_times_come_out_in_utc() -> None:
    """Those without a zone count as UTC's."""
    naive, aware = pd.Timestamp("2024-05-01 12:00"), pd.Timestamp("2024-05-01 14:00", tz="Europe/Berlin")
    for form, answer in (
        ("pandas", [pd.DataFrame({"t": [naive]}), pd.DataFrame({"t": [aware]})]),
        ("rows", [Row(t=naive.to_pydatetime()), Row(t=aware.to_pydatetime())]),
    ):
        assert [row["t"] for row in returning(form, answer, "t timestamp")] == [naive.tz_localize("UTC")] * 2


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"form": "arrow"}, "form='arrow' is unknown"),
        ({"time_mode": "sometime"}, "time mode 'sometime' is unknown"),
        ({"initial_state": pa.table({"x": [1]})}, "the initial state has no column 'k', which is part of the key"),
    ],
)
def test_a_processor_that_cannot_run_is_refused_before_it_does(config: Any, sentence: str) -> None:
    """By a sentence."""
    with pytest.raises(FlowError) as refusal:
        Process(processor=Scripted("rows"), key_columns=("k",), schema=TOLD, **config)
    assert sentence in str(refusal.value)


def test_the_form_is_read_from_annotations() -> None:
    """Of the rows, or of what is returned; DataFrames if there are none."""

    class Base(StatefulProcessor):
        def init(self, handle: Any) -> None:
            """Need nothing."""

    class ByRows(Base):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any: ...

    class ByResult(Base):
        def handleInputRows(self, key: Any, rows, timerValues) -> Iterator[Row]: ...  # type: ignore[no-untyped-def, empty-body]

    class ByText(Base):
        def handleInputRows(self, key: Any, rows: "Iterator[Row]", timerValues: Any) -> Any: ...

    class ByFrames(Base):
        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any: ...

    class ByEither(Base):
        def handleInputRows(self, key, rows, timerValues) -> "Iterator[pd.DataFrame | Row]": ...  # type: ignore[no-untyped-def, empty-body]

    class ByNothing(Base):
        def handleInputRows(self, key, rows, timerValues): ...  # type: ignore[no-untyped-def]

    assert [form_of_processor(one()) for one in (ByRows, ByResult, ByText)] == ["rows"] * 3
    assert [form_of_processor(one()) for one in (ByFrames, ByEither, ByNothing)] == ["pandas"] * 3


def test_a_configured_processor_travels() -> None:
    """As part of the plan."""
    operator = Process(processor=WordFrequency("rows"), key_columns=("key",), schema=WORDS, form="rows")
    on = TimedBench(pickle.loads(cloudpickle.dumps(operator)))
    assert on.rows([{"key": "a", "word": "x"}]) == [{"key": "a", "word": "x", "count": 1}]
    assert (operator.key, operator.columns_needed, operator.needs_watermark) == (("key",), ("key",), False)


WORDS = arrow_schema("key string, word string, count bigint")

keys = st.sampled_from(["a", "b", "c", "é", "x" * 500, None])
word_rows = st.lists(st.tuples(keys, st.sampled_from(["", "to", "be", "ß" * 90])), min_size=1, max_size=30)
cuts = st.lists(st.integers(0, 30), max_size=5).map(sorted)


def words(form: str) -> Process:
    """Return a processor whose output does not depend on how rows are cut into batches."""
    config: dict[str, Any] = {"form": form}
    return Process(processor=WordFrequency(form), key_columns=("key",), schema=WORDS, **config)


def as_rows(pairs: list[tuple[Any, str]]) -> list[dict[str, Any]]:
    """Return rows of these keys and words."""
    return [{"key": key, "word": word} for key, word in pairs]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return the rows as texts, also if there are only nulls."""
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([("key", pa.string()), ("word", pa.string())]))


def by_key(rows: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    """Return the rows of each key, in order."""
    return {key: [row for row in rows if row["key"] == key] for key in {row["key"] for row in rows}}


@FORMS
@settings(max_examples=40, deadline=None)
@given(pairs=word_rows, at=cuts)
def test_how_rows_are_cut_into_batches_makes_no_difference(form: str, pairs: Any, at: list[int]) -> None:
    """For a processor that makes a row for each row."""
    whole, pieces = TimedBench(words(form)), TimedBench(words(form))
    rows = as_rows(pairs)
    whole.rows(batch_of(rows))
    for start, end in zip([0, *at], [*at, len(rows)], strict=True):
        if rows[start:end]:
            pieces.rows(batch_of(rows[start:end]))
    assert by_key(pieces.out["out"]) == by_key(whole.out["out"])
    assert pieces.kept == whole.kept


def in_groups(rows: list[dict[str, Any]], groups: range) -> list[dict[str, Any]]:
    """Return the rows whose keys belong to these groups."""
    return [row for row in rows if group_of(encode_key(row["key"])) in groups]


@FORMS
@settings(max_examples=40, deadline=None)
@given(pairs=word_rows, more=word_rows, last=word_rows, border=st.integers(0, KEY_GROUPS))
def test_state_can_be_moved_cut_and_merged_in_the_middle(
    form: str, pairs: Any, more: Any, last: Any, border: int
) -> None:
    """Per key the output is the same, in order."""
    stays = TimedBench(words(form))
    for batch in (pairs, more, last):
        stays.rows(batch_of(as_rows(batch)))
    left = TimedBench(words(form))
    left.rows(batch_of(as_rows(pairs)))
    left = moved(left)
    right = left.cut(range(border, KEY_GROUPS))
    made = list(left.out["out"])
    for bench, groups in ((left, range(border)), (right, range(border, KEY_GROUPS))):
        routed = in_groups(as_rows(more), groups)
        made += bench.rows(batch_of(routed)) if routed else []
    left.merge(right)
    made += left.rows(batch_of(as_rows(last)))
    assert by_key(made) == by_key(stays.out["out"])
    assert left.kept == stays.kept


def moved(on: TimedBench) -> TimedBench:
    """Return a bench elsewhere that goes on with the state and has what came out so far."""
    elsewhere = TimedBench(on.operator, on.kept)
    elsewhere.watermark_us, elsewhere.now_us = on.watermark_us, on.now_us
    elsewhere.out = on.out
    return elsewhere


@FORMS
@settings(max_examples=30, deadline=None)
@given(
    seen=st.lists(st.tuples(st.integers(0, 40), keys.filter(bool)), min_size=1, max_size=12),
    border=st.integers(0, KEY_GROUPS),
)
def test_timers_go_with_their_keys_and_nothing_is_left_when_all_have_fired(form: str, seen: Any, border: int) -> None:
    """A session ends once, ten seconds after its last row, wherever it is then."""
    config: dict[str, Any] = {"form": form, "time_mode": "processingtime"}
    schema = arrow_schema("key string, result string")
    on = TimedBench(Process(processor=SessionTimeout(form), key_columns=("key",), schema=schema, **config))
    last: dict[str, int] = {}
    for second, key in sorted(seen):
        on.clock(second * 1_000_000)
        on.rows([{"key": key, "value": "v"}])
        last[key] = second
    right = moved(on).cut(range(border, KEY_GROUPS))
    on.cut(range(border, KEY_GROUPS))
    ended: dict[str, int] = {}
    for second in range(60):
        for bench in (on, right):
            if second * 1_000_000 > bench.now_us:
                ended |= {row["key"]: second for row in bench.clock(second * 1_000_000)}
    now = max(last.values())
    assert ended == {key: second + 10 for key, second in last.items() if second + 10 > now}
    for bench in (on, right):
        assert [one for one in bench.kept if group_of_entry(one) != EVERY_GROUP] == []


@FORMS
def test_each_instance_gives_the_initial_state_of_its_own_keys(form: str) -> None:
    """Also where an instance takes over keys whose own had not begun."""
    names = [f"key {number}" for number in range(50)]
    initial = pa.table({"key": names, "initial_count": pa.array(range(50), pa.int32())})
    config: dict[str, Any] = {"form": form, "schema": arrow_schema("key string, count int")}
    operator = Process(processor=RunningCount(form), key_columns=("key",), initial_state=initial, **config)
    lower = TimedBench(operator, groups=range(512))
    rows = [{"key": name} for name in names]
    expected = [{"key": name, "count": number + 1} for number, name in enumerate(names)]
    assert lower.rows(in_groups(rows, range(512))) == in_groups(expected, range(512))
    everything = TimedBench(operator, lower.kept)
    made = everything.rows(rows)
    first = in_groups(made, range(512))
    assert [row["count"] for row in first] == [row["count"] + 1 for row in in_groups(expected, range(512))]
    assert in_groups(made, range(512, KEY_GROUPS)) == in_groups(expected, range(512, KEY_GROUPS))


@FORMS
def test_timers_of_an_initial_state_fire_even_if_no_row_ever_comes(form: str) -> None:
    """At the end, all in one."""
    initial = pa.table({"id": ["a", "b"], "initVal": pa.array([1, 2], pa.int32())})
    config: dict[str, Any] = {"form": form, "time_mode": "processingtime", "initial_state": initial}
    schema = arrow_schema("id string, value string")
    on = TimedBench(Process(processor=AddingWithTimers(form), key_columns=("id",), schema=schema, **config))
    assert sorted(row["id"] for row in on.end()) == ["a-expired", "b-expired"]


def test_what_outlives_its_time_does_so_wherever_it_has_been_moved() -> None:
    """What is to be removed when is part of each key's state."""
    left = mortal()
    left.rows([{"k": number} for number in range(50)])
    right = left.cut(range(512, KEY_GROUPS))
    assert len(left.kept) + len(right.kept) == 50 * 7 + 2
    for on in (left, right):
        on.clock(10_700_000)
        assert {group_of_entry(one) for one in on.kept} == {EVERY_GROUP}


def test_what_has_outlived_its_time_is_removed_though_nobody_looks() -> None:
    """Values, lists and maps; those that are renewed stay."""
    on = mortal()
    for second in range(8):
        on.clock(second * 1_000_000)
        on.rows([{"k": "kept"}, {"k": "left"}] if second == 0 else [{"k": "kept"}])
    assert {group_of_entry(one) for one in on.kept} == {EVERY_GROUP, *(group(name) for name in ("kept", "left"))}
    on.clock(10_700_000)
    assert {group_of_entry(one) for one in on.kept} == {EVERY_GROUP, group("kept")}
    on.clock(99_000_000)
    assert {group_of_entry(one) for one in on.kept} == {EVERY_GROUP}
    assert waking(on) is None


def group(name: str) -> int:
    """Return the group of a key."""
    return group_of(encode_key(name))


def mortal() -> TimedBench:
    """Return a processor whose state lives ten seconds."""
    config: dict[str, Any] = {"form": "rows", "time_mode": "processingtime", "schema": arrow_schema("alive int")}
    return TimedBench(Process(processor=Mortal("rows"), key_columns=("k",), **config))


class Mortal(InBothForms):
    """Writes into each kind of state, and tells how much is alive."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "a int", 10_000)
        self.listed = handle.getListState("list", "a int", 10_000)
        self.mapped = handle.getMapState("map", "a int", "b int", 10_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        number = timerValues.getCurrentProcessingTimeInMs() % 1_000_000
        self.value.update((number,))
        self.listed.appendValue((number,))
        self.mapped.updateValue((number,), (number,))
        yield self.made(alive=len(list(self.listed.get())))


def test_a_key_that_is_renewed_again_and_again_leaves_few_traces() -> None:
    """Ten seconds to live, renewed 25 times a second: an entry of the index is good for a sixteenth of those ten."""
    on = mortal()
    for now_ms in range(0, 12_000, 40):
        on.clock(now_ms * 1_000)
        on.rows([{"k": "a"}])
    behind_key = 9 + 2 + len(encode_key("a"))
    index = Counter(chr(one[behind_key]) for one in on.kept if one[0] == EXPIRIES)
    assert index["V"] == 1
    assert index["L"] <= 18
    assert 250 <= index["M"] <= 250 + 16
    assert on.out["out"][-1] == {"alive": 250}


def test_without_a_time_mode_only_the_end_counts() -> None:
    """The watermark may rise as it likes."""
    on = TimedBench(words("rows"))
    on.rows([{"key": "a", "word": "x"}])
    assert (on.watermark(5), on.clock(5), waking(on), on.end()) == ([], [], None, [])
    assert on.watermark_us > BEGINNING_OF_TIME
