"""What PySpark's own tester and documentation say of processors, beside the engine's cases."""

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkValueError
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from headwater.operators.processors.processing import ProcessorForm
from headwater.operators.processors.processor_state import ProcessorHandle
from tests.pyspark_suite import processors as theirs
from tests.pyspark_suite.test_engine import FORMS, SECOND_US, START_US, bench, pairs


@FORMS
def test_scores_words_and_counts_go_on_from_batch_to_batch(form: ProcessorForm) -> None:
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
def test_a_session_ends_ten_seconds_after_its_last_row(form: ProcessorForm) -> None:
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
def test_a_session_of_event_time_ends_by_the_watermark(form: ProcessorForm) -> None:
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
def test_whatever_is_done_to_state_has_the_same_effect_as_in_pyspark_s_own_tester(
    form: ProcessorForm, batches: Any
) -> None:
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


class SeveralStates(theirs.InBothForms):
    """Keeps a count, the texts and how often each came, in two variables of every kind, and tells them."""

    def init(self, handle: Any) -> None:
        """Declare them."""
        self.counts = [handle.getValueState(f"count{n}", "n int") for n in (1, 2)]
        self.texts = [handle.getListState(f"texts{n}", "t string") for n in (1, 2)]
        self.often = [handle.getMapState(f"often{n}", "t string", "n int") for n in (1, 2)]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - PySpark's names
        """Count."""
        for row in self.each(rows):
            for step, (count, texts, often) in enumerate(zip(self.counts, self.texts, self.often, strict=True), 1):
                count.update(((count.get()[0] if count.exists() else 0) + step,))
                texts.appendValue((f"{row.value}{step}",))
                before = often.getValue((row.value,))
                often.updateValue((row.value,), ((before[0] if before is not None else 0) + step,))
        told = [[one.get() for one in self.counts], [list(one.get()) for one in self.texts]]
        yield self.made(key=key[0], result=repr([*told, [sorted(map(repr, one.iterator())) for one in self.often]]))


@FORMS
@pytest.mark.parametrize("keys", [["a", "b"], [1, 2], ["key@#$%", ""], [None, "a"]], ids=repr)
@pytest.mark.parametrize("values", [["x"], ["x", "y", "x"], [None, "x"]], ids=repr)
@pytest.mark.parametrize(
    ("make", "schema"),
    [(SeveralStates, "key {}, result string"), (theirs.RunningCount, "key {}, count int")],
    ids=["several", "count"],
)
def test_keys_and_values_of_all_kinds_make_what_they_make_in_pyspark_s_own_tester(
    form: ProcessorForm, keys: list[Any], values: list[Any], make: Any, schema: str
) -> None:
    """Twice, so that the state of the first batch is met by the second; nulls are keys and values, too."""
    tester = TwsTester(make("rows"))
    kind = "int" if isinstance(keys[0], int) else "string"
    on = bench(make(form), form, schema.format(kind), key_columns=("key",))
    batch = pa.record_batch(
        {"key": pa.array([key for key in keys for _ in values]), "value": pa.array(values * len(keys), pa.string())}
    )
    for _ in range(2):
        expected = [row.asDict() for key in keys for row in tester.test(key, [Row(value=value) for value in values])]
        assert on.rows(batch) == expected


@pytest.mark.parametrize("do", ["registerTimer", "deleteTimer", "listTimers"])
def test_timers_without_a_time_mode_raise_what_pyspark_s_own_tester_raises(do: str) -> None:
    """The same class, the same condition."""
    handles: list[Any] = [TwsTester(theirs.RunningCount("rows"), timeMode="None").handle, ProcessorHandle("none")]
    raised = []
    for handle in handles:
        with pytest.raises(PySparkValueError, match=r"Timers with TimeMode.None.*is not supported") as refusal:
            getattr(handle, do)(*([] if do == "listTimers" else [12345]))
        raised.append((type(refusal.value), refusal.value.getCondition()))
    assert raised == [(PySparkValueError, "UNSUPPORTED_OPERATION")] * 2
