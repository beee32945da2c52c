"""State variables and timers by hand: what is put is found, and what PySpark refuses is refused in its words."""

import datetime as dt
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row

from headwater.model.entries import key_suffix
from headwater.model.keys import encode_key
from headwater.operators.processors.processor_entries import EXPIRIES, CallEntries, part_of
from headwater.operators.processors.processor_state import (
    ProcessorHandle,
    ProcessorPhase,
    Timer,
    due_timers,
    forget_expired,
)
from headwater.operators.processors.spark_names import PlainRow, StateError, TimerValues, row_maker, state_error
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.processors.spark_values import RowCodec
from headwater.operators.state import OperatorState
from headwater.operators.state_values import WrongState
from tests.operators.timed_bench import DictStore

LONG = "long " * 200
KEYS = ["a", "b", "ab", LONG, LONG + "!"]


class Calls:
    """A handle with its processor's variables, and calls on it one after the other over a dict."""

    def __init__(self, declare: Callable[[ProcessorHandle], Any], mode: str = "processingtime") -> None:
        """Declare the variables."""
        self.kept: dict[bytes, bytes] = {}
        self.reads = 0
        self.now_ms = 0
        self.handle = ProcessorHandle(mode)
        with self.call() as desk:
            self.variables = declare(self.handle)
            desk.hand_over()
        self.handle.phase = ProcessorPhase.RUNNING

    @contextmanager
    def call(self, *keys: Any) -> Iterator[CallEntries]:
        """Begin a call that reads the values of these keys at once; if it goes well, what has changed is kept."""
        state = OperatorState(_CountingStore(self))
        desk = CallEntries(state)
        self.handle.lay(desk, self.now_ms)
        desk.fetch(self.handle.entries(part_of(key_suffix(encode_key(key))) for key in keys))
        try:
            yield desk
            desk.hand_over()
        finally:
            self.handle.clear_away()
        for entry, value in state.changes.items():
            if value is None:
                self.kept.pop(entry, None)
            else:
                self.kept[entry] = value

    def of(self, key: Any, do: Callable[[Any], Any]) -> Any:
        """Do something with the variables of one key, in a call of its own."""
        with self.call(key):
            self.turn_to(key)
            return do(self.variables)

    def turn_to(self, key: Any) -> None:
        """Handle a key from here on."""
        encoded = encode_key(key)
        self.handle.turn_to(part_of(key_suffix(encoded)), encoded)


class _CountingStore(DictStore):
    """Counts how often it is asked."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls.kept)
        self._calls = calls

    def read_many(self, keys: Any) -> list[bytes | None]:
        """Return the values of these entries."""
        self._calls.reads += 1
        return super().read_many(keys)


MANY = (
    "a int, b double, c string, d boolean, e timestamp, f decimal(10,2), g binary, h date, i bigint, j float, "
    "k timestamp_ntz, l interval day to second, m array<double>, n map<int,string>, o struct<x:int,y:string>"
)
TWO_HOURS_EAST = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - as PySpark gives it


@pytest.mark.parametrize(
    ("field", "given", "got"),
    [
        ("a", 5, 5),
        ("a", np.int64(-3), -3),
        ("a", float("nan"), None),
        ("b", 5.5, 5.5),
        ("b", np.float32(1.5), 1.5),
        ("c", "é", "é"),
        ("c", np.str_("s"), "s"),
        ("c", 5, "5"),
        ("c", True, "true"),
        ("c", 5.5, "5.5"),
        ("c", 1e20, "1.0E20"),
        ("c", -1.25e-7, "-1.25E-7"),
        ("d", np.bool_(True), True),
        ("e", NOON, NOON),
        ("e", NOON.replace(tzinfo=TWO_HOURS_EAST), NOON.replace(hour=10)),
        ("e", pd.Timestamp("2020-01-01T12:00:00.123456789"), NOON.replace(microsecond=123456)),
        ("f", Decimal("1.5"), Decimal("1.50")),
        ("f", Decimal("1.555"), Decimal("1.56")),
        ("g", b"\x00", b"\x00"),
        ("g", "ab", b"ab"),
        ("g", bytearray(b"x"), b"x"),
        ("h", dt.date(2020, 1, 1), dt.date(2020, 1, 1)),
        ("h", NOON, dt.date(2020, 1, 1)),
        ("i", 2**40, 2**40),
        ("j", 1.1, 1.100000023841858),
        ("j", 1e300, float("inf")),
        ("k", NOON, NOON),
        ("k", NOON.replace(tzinfo=dt.UTC), NOON),
        ("l", pd.Timedelta("1 day 5us"), dt.timedelta(1, 0, 5)),
        ("m", [1.0, None], [1.0, None]),
        ("m", (1.5,), [1.5]),
        ("m", np.array([1.5]), [1.5]),
        ("n", {1: "a", np.int64(2): None}, {1: "a", 2: None}),
        ("o", {"x": 1, "z": 5}, Row(x=1, y=None)),
        ("o", Row(x=1, y="b"), Row(x=1, y="b")),
        ("o", (1, "b"), Row(x=1, y="b")),
    ],
)
def test_a_value_comes_back_as_pyspark_gives_it(field: str, given: Any, got: Any) -> None:
    """As seen on PySpark 4.3, with the computer's and the session's time zone at UTC."""
    assert kept(field, given) == got


def kept(field: str, given: Any) -> Any:
    """Return what comes back of one field's value."""
    schema = arrow_schema(MANY)
    calls = Calls(lambda handle: handle.getValueState("v", MANY))
    values = [given if name == field else None for name in schema.names]
    calls.of("a", lambda variable: variable.update(tuple(values)))
    back = calls.of("a", lambda variable: variable.get())
    assert type(back) is tuple
    assert back.count(None) >= len(schema.names) - 1
    return back[schema.names.index(field)]


@pytest.mark.parametrize(
    ("field", "given", "got"), [("a", 5.0, 5), ("b", 5, 5.0), ("b", np.int64(4), 4.0), ("f", 1, Decimal("1.00"))]
)
def test_what_spark_would_lose_is_kept_if_it_fits(field: str, given: Any, got: Any) -> None:
    """Spark makes null of a whole number for a double, and of a double for a whole number."""
    back = kept(field, given)
    assert (back, type(back)) == (got, type(got))


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("a", "x"),
        ("a", True),
        ("a", 2**31),
        ("a", 5.5),
        ("a", pd.NA),
        ("b", "x"),
        ("b", 2**60 + 1),
        ("b", Decimal("1.5")),
        ("c", b"ab"),
        ("c", [1]),
        ("d", 1),
        ("e", 5),
        ("e", pd.NaT),
        ("e", dt.date(2020, 1, 1)),
        ("f", Decimal("123456789")),
        ("f", Decimal("99999999.999")),
        ("f", Decimal("NaN")),
        ("f", 1.5),
        ("g", 5),
        ("h", "2020-01-01"),
        ("l", 5),
        ("l", dt.timedelta.max),
        ("m", 5.0),
        ("m", ["x"]),
        ("n", [1]),
        ("n", {None: "a"}),
        ("o", (1,)),
        ("o", "xy"),
    ],
)
def test_what_would_be_lost_is_refused(field: str, given: Any) -> None:
    """By the names of the variable and the field, with what it was given."""
    with pytest.raises(WrongState, match="state 'v'") as refusal:
        kept(field, given)
    assert "declared" in str(refusal.value)


def test_a_wrong_number_of_values_is_refused() -> None:
    """And nulls where none are declared; like PySpark's, a text is its letters, and a number cannot be iterated."""
    calls = Calls(lambda handle: handle.getValueState("v", "a string, b string not null"))
    with pytest.raises(WrongState, match=r"state 'v' has 2 fields \(a, b\), but was given 1 values"):
        calls.of("a", lambda variable: variable.update(("x",)))
    with pytest.raises(WrongState, match="state 'v': field 'b' is declared without nulls"):
        calls.of("a", lambda variable: variable.update(("x", None)))
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        calls.of("a", lambda variable: variable.update(5))
    calls.of("a", lambda variable: variable.update("xy"))
    assert calls.of("a", lambda variable: variable.get()) == ("x", "y")


def test_a_changed_schema_is_told() -> None:
    """Rather than fields mixed up."""
    calls = Calls(lambda handle: handle.getValueState("v", "a int, b int"))
    calls.of("a", lambda variable: variable.update((1, 2)))
    later = Calls(lambda handle: handle.getValueState("v", "a int"))
    later.kept = calls.kept
    with pytest.raises(WrongState, match="state 'v' was kept with 2 fields, but is now declared with 1"):
        later.of("a", lambda variable: variable.get())


def test_mutating_what_was_got_changes_nothing() -> None:
    """Only what is put is kept."""
    calls = Calls(lambda handle: handle.getValueState("v", "a array<int>"))
    calls.of("a", lambda variable: variable.update(([1],)))

    def spoil(variable: Any) -> Any:
        variable.get()[0].append(2)
        return variable.get()

    assert calls.of("a", spoil) == ([1],)


def test_all_values_of_a_batch_are_read_at_once() -> None:
    """However many keys and variables there are."""
    calls = Calls(
        lambda h: [h.getValueState("v", "a int"), h.getValueState("w", "a int"), h.getListState("l", "a int")]
    )
    with calls.call(*range(100)):
        for key in range(100):
            calls.turn_to(key)
            for variable in calls.variables:
                assert not variable.exists()
            calls.variables[0].update((key,))
            calls.variables[2].appendValue((key,))
    assert calls.reads == 1
    assert calls.of(7, lambda variables: variables[0].get()) == (7,)


def test_a_map_that_was_read_through_is_not_read_again() -> None:
    """Nor is what was asked for before."""
    calls = Calls(lambda handle: handle.getMapState("m", "k string", "v int"))
    calls.of("a", lambda variable: variable.updateValue("x", (1,)))
    calls.reads = 0

    def look(variable: Any) -> list[Any]:
        found = [variable.getValue("x"), variable.containsKey("x"), variable.exists()]
        return [*found, variable.containsKey("y"), variable.getValue("z")]

    assert calls.of("a", look) == [(1,), True, True, False, None]
    assert calls.reads == 1


def declare_all(handle: ProcessorHandle) -> tuple[Any, Any, Any]:
    """Declare one variable of each kind that is deleted at once."""
    variables = (
        handle.getValueState("v", "a int"),
        handle.getListState("l", "a int"),
        handle.getMapState("m", "a int", "b int"),
    )
    for name in ("v", "l", "m", "never was"):
        handle.deleteIfExists(name)
    return variables


@pytest.mark.parametrize(
    ("do", "sentence"),
    [
        (lambda v, xs, m: v.exists(), "Error checking value state exists: Value state v is not initialized."),
        (lambda v, xs, m: v.get(), "Error getting value state: Value state v is not initialized."),
        (lambda v, xs, m: v.update((1,)), "Error updating value state: Value state v is not initialized."),
        (lambda v, xs, m: v.clear(), "Error clearing value state: Value state v is not initialized."),
        (lambda v, xs, m: xs.exists(), "Error checking value state exists: List state l is not initialized."),
        (lambda v, xs, m: xs.put([(1,)]), "Error updating value state: List state l is not initialized."),
        (lambda v, xs, m: xs.appendValue((1,)), "Error updating value state: List state l is not initialized."),
        (lambda v, xs, m: xs.appendList([(1,)]), "Error updating value state: List state l is not initialized."),
        (lambda v, xs, m: xs.clear(), "Error clearing value state: List state l is not initialized."),
        (lambda v, xs, m: m.exists(), "Error checking map state exists: Map state m is not initialized."),
        (lambda v, xs, m: m.getValue((1,)), "Error getting value: Map state m is not initialized."),
        (lambda v, xs, m: m.containsKey((1,)), "Error checking if map state contains key: Map state m is not"),
        (lambda v, xs, m: m.updateValue((1,), (1,)), "Error updating map state value: Map state m is not"),
        (lambda v, xs, m: m.removeKey((1,)), "Error removing key from map state: Map state m is not initialized."),
        (lambda v, xs, m: m.clear(), "Error clearing map state: Map state m is not initialized."),
    ],
)
def test_a_deleted_variable_is_refused_in_pyspark_s_words(do: Any, sentence: str) -> None:
    """And with its error; only iterating finds nothing."""
    calls = Calls(declare_all)
    with pytest.raises(PySparkRuntimeError) as refusal:
        calls.of("a", lambda variables: do(*variables))
    assert sentence in str(refusal.value)
    assert calls.of("a", lambda variables: list(variables[1].get())) == []
    for read in ("keys", "values", "iterator"):
        assert calls.of("a", lambda variables: list(operator.methodcaller(read)(variables[2]))) == []  # noqa: B023


def test_deleting_a_variable_forgets_it_for_all_keys() -> None:
    """And nothing else; the name may be used anew."""
    calls = Calls(
        lambda h: (h.getValueState("x", "a int"), h.getListState("x", "a int"), h.getMapState("x", "a int", "b int"))
    )
    others = Calls(
        lambda h: (h.getValueState("y", "a int"), h.getListState("y", "a int"), h.getMapState("y", "a int", "b int"))
    )
    others.kept = calls.kept
    for key in KEYS:
        for one in (calls, others):
            one.of(key, lambda variables: (variables[0].update((1,)), variables[1].put([(1,), (2,)])))
            one.of(key, lambda variables: variables[2].updateValue((1,), (1,)))
    before = len(calls.kept)

    def again(handle: ProcessorHandle) -> Any:
        handle.deleteIfExists("x")
        return handle.getValueState("x", "a string, b string")

    later = Calls(lambda handle: None)
    later.kept = calls.kept
    later.handle = ProcessorHandle("none")
    with later.call():
        later.variables = again(later.handle)
    assert len(later.kept) == before // 2
    assert others.of(LONG, lambda variables: list(variables[1].get())) == [(1,), (2,)]
    later.of("a", lambda variable: variable.update(("p", "q")))
    assert later.of("a", lambda variable: variable.get()) == ("p", "q")


@pytest.mark.parametrize(
    ("mode", "do", "sentence"),
    [
        (
            "none",
            lambda h: (h.getValueState("v", "a int"), h.getValueState("v", "a int")),
            "Value state v already exists",
        ),
        ("none", lambda h: h.getValueState("v", "a int", 5), "Error initializing value state: v has a time to live"),
        ("eventtime", lambda h: h.getListState("v", "a int", 5), "which needs timeMode processingtime, not eventtime"),
        ("processingtime", lambda h: h.getMapState("v", "a int", "b int", -1), "must be greater than zero, not -1 ms"),
        ("eventtime", lambda h: h.registerTimer(5), "Error register timer: this cannot be done while"),
        ("none", lambda h: h.getValueState("v", "a int").get(), "Value state v has no key outside of a key's own call"),
    ],
)
def test_what_is_wrong_in_init_is_told(mode: str, do: Any, sentence: str) -> None:
    """With PySpark's error."""
    with pytest.raises(PySparkRuntimeError) as refusal:
        Calls(do, mode)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    "do",
    [
        lambda h: h.getValueState("w", "a int"),
        lambda h: h.getListState("w", "a int"),
        lambda h: h.getMapState("w", "a int", "b int"),
        lambda h: h.deleteIfExists("v"),
    ],
)
def test_variables_are_declared_in_init_only(do: Any) -> None:
    """As in Spark."""
    calls = Calls(lambda handle: handle.getValueState("v", "a int", 0))
    with pytest.raises(PySparkRuntimeError, match="cannot be done while the processor is in phase running"):
        calls.of("a", lambda _: do(calls.handle))


def test_an_empty_list_is_refused() -> None:
    """As in Spark; a list of nulls is a list."""
    calls = Calls(lambda handle: handle.getListState("l", "a int"))
    for do in (lambda variable: variable.put([]), lambda variable: variable.appendList([])):
        with pytest.raises(PySparkRuntimeError, match="Error updating value state: List state l was given an empty"):
            calls.of("a", do)
    calls.of("a", lambda variable: variable.appendList(iter([(None,)])))
    assert calls.of("a", lambda variable: list(variable.get())) == [(None,)]


def test_a_map_s_values_are_rows_and_its_keys_sorted() -> None:
    """`getValue` gives names to the fields, iterating gives tuples; keys may be of several fields, and long."""
    calls = Calls(lambda handle: handle.getMapState("m", "a string, b int", "x int, y string"))

    def fill(variable: Any) -> None:
        for name in ("b", LONG, "a"):
            variable.updateValue((name, 1), (len(name), name))

    calls.of("k", fill)
    row = calls.of("k", lambda variable: variable.getValue(("a", 1)))
    assert (type(row), row.x, row["y"]) == (Row, 1, "a")
    assert calls.of("k", lambda variable: list(variable.keys())) == [("a", 1), ("b", 1), (LONG, 1)]
    assert calls.of("k", lambda variable: list(variable.values())) == [(1, "a"), (1, "b"), (len(LONG), LONG)]
    pairs = calls.of("k", lambda variable: list(variable.iterator()))
    assert {type(part) for pair in pairs for part in pair} == {tuple}
    calls.of("k", lambda variable: variable.removeKey((LONG, 1)))
    assert calls.of("k", lambda variable: (variable.getValue((LONG, 1)), variable.containsKey(("b", 2)))) == (
        None,
        False,
    )


def test_timers_are_kept_once_and_listed_in_order() -> None:
    """For the key alone; deleting one that is not there is nothing."""
    calls = Calls(lambda handle: handle)
    for key in KEYS:
        calls.of(key, lambda handle: [handle.registerTimer(at) for at in (9, -5, np.int64(9), 2**62)])
    calls.of("a", lambda handle: (handle.deleteTimer(9), handle.deleteTimer(77), handle.registerTimer(3)))
    assert calls.of("a", lambda handle: list(handle.listTimers())) == [-5, 3, 2**62]
    assert calls.of(LONG, lambda handle: list(handle.listTimers())) == [-5, 9, 2**62]
    with calls.call() as desk:
        due = due_timers(desk, 9)
        assert len(due_timers(desk, None)) == 3 * len(KEYS)
    assert [timer.expiry_ms for timer in due] == [-5] * 5 + [3] + [9] * 4
    assert {timer.key for timer in due} == {encode_key(key) for key in KEYS}
    assert Timer(3, encode_key("a")) in due


@pytest.mark.parametrize(("at", "error"), [(5.5, TypeError), ("5", TypeError), (2**63, PySparkRuntimeError)])
def test_what_is_no_time_is_refused(at: Any, error: type[Exception]) -> None:
    """A timer needs whole milliseconds."""
    calls = Calls(lambda handle: handle)
    with pytest.raises(error):
        calls.of("a", lambda handle: handle.registerTimer(at))


def test_a_call_that_fails_leaves_nothing() -> None:
    """The desk is thrown away."""
    calls = Calls(lambda handle: handle.getValueState("v", "a int"))

    def fail(variable: Any) -> None:
        variable.update((1,))
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        calls.of("a", fail)
    assert calls.kept == {}
    with pytest.raises(PySparkRuntimeError, match="has no key outside"):
        calls.variables.get()


def test_rows_and_errors_of_our_own_stand_in_where_pyspark_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same shape."""
    ours = PlainRow((1, [Row(x=1)]))
    ours.__fields__ = ("a", "b")
    inner = PlainRow((2,))
    inner.__fields__ = ("c",)
    outer = PlainRow((inner, [inner], {"k": inner}))
    outer.__fields__ = ("x", "y", "z")
    assert (ours.a, ours["a"], ours[0], ours[-1][0].x) == (1, 1, 1, 1)
    assert outer.asDict(True) == {"x": {"c": 2}, "y": [{"c": 2}], "z": {"k": {"c": 2}}}
    assert repr(inner) == repr(Row(c=2))
    with pytest.raises(AttributeError):
        _ = ours.c
    monkeypatch.setattr("headwater.operators.processors.spark_names._loaded", lambda module, name, otherwise: otherwise)
    assert isinstance(row_maker(["a"])(1), PlainRow)
    assert row_maker(["a", "b"])(1, 2).asDict() == {"a": 1, "b": 2}
    assert isinstance(state_error("x"), StateError)
    assert (TimerValues().getCurrentProcessingTimeInMs(), TimerValues().getCurrentWatermarkInMs()) == (-1, -1)


LONGEST = dt.timedelta(microseconds=2**63 - 1)

values = st.recursive(
    st.one_of(
        st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(pa.float64()), st.floats(allow_nan=False)),
        st.tuples(st.just(pa.string()), st.text()),
        st.tuples(st.just(pa.binary()), st.binary()),
        st.tuples(st.just(pa.bool_()), st.booleans()),
        st.tuples(st.just(pa.date32()), st.dates()),
        st.tuples(st.just(pa.timestamp("us", "UTC")), st.datetimes()),
        st.tuples(st.just(pa.duration("us")), st.timedeltas(-LONGEST, LONGEST)),
        st.tuples(st.just(pa.time64("us")), st.times()),
        st.tuples(st.just(pa.decimal128(38, 6)), st.decimals(-(10**30), 10**30, places=6)),
        st.tuples(st.just(pa.int32()), st.none()),
    ),
    lambda inner: st.one_of(
        inner.map(lambda one: (pa.list_(one[0]), [one[1], one[1]])),
        inner.map(lambda one: (pa.map_(pa.string(), one[0]), {"k": one[1]})),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda all_: (pa.struct([(f"f{i}", one[0]) for i, one in enumerate(all_)]), tuple(one[1] for one in all_))
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, min_size=1, max_size=4))
def test_whatever_fits_a_schema_comes_back(fields: Any) -> None:
    """Through bytes."""
    codec = RowCodec(pa.schema([(f"f{i}", kind) for i, (kind, _) in enumerate(fields)]), "it")
    given = tuple(value for _, value in fields)
    assert codec.decode(codec.encode(given)) == given


NUMBERS = st.integers(0, 5)
WHO = st.sampled_from(KEYS)


class MortalState(RuleBasedStateMachine):
    """Variables with a time to live against a plain model: what is seen is what the model says is alive."""

    TTL_MS = 100

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.calls = Calls(
            lambda h: (
                h.getValueState("v", "a int", self.TTL_MS),
                h.getListState("l", "a int", self.TTL_MS),
                h.getMapState("m", "a int", "b int", self.TTL_MS),
            )
        )
        self.value: dict[str, tuple[int, int]] = {}
        self.listed: dict[str, list[tuple[int, int]]] = {}
        self.mapped: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def expiry_ms(self) -> int:
        """When what is put now expires."""
        return self.calls.now_ms + self.TTL_MS

    @rule(key=WHO, number=NUMBERS)
    def update(self, key: str, number: int) -> None:
        """Put a value."""
        self.calls.of(key, lambda v: v[0].update((number,)))
        self.value[key] = (number, self.expiry_ms)

    @rule(key=WHO)
    def clear(self, key: str) -> None:
        """Forget all of a key."""
        self.calls.of(key, lambda v: [one.clear() for one in v])
        self.value.pop(key, None)
        self.listed.pop(key, None)
        self.mapped = {pair: one for pair, one in self.mapped.items() if pair[0] != key}

    @rule(key=WHO, number=NUMBERS, whole=st.booleans())
    def extend(self, key: str, number: int, whole: bool) -> None:
        """Put a list, or append to it."""
        elements = [(number,), (number + 1,)]
        self.calls.of(key, lambda v: v[1].put(elements) if whole else v[1].appendList(elements))
        before = [] if whole else self.listed.get(key, [])
        self.listed[key] = before + [(one, self.expiry_ms) for (one,) in elements]

    @rule(key=WHO, name=NUMBERS, number=NUMBERS)
    def pair(self, key: str, name: int, number: int) -> None:
        """Put a pair."""
        self.calls.of(key, lambda v: v[2].updateValue((name,), (number,)))
        self.mapped[key, name] = (number, self.expiry_ms)

    @rule(key=WHO, name=NUMBERS)
    def remove(self, key: str, name: int) -> None:
        """Remove a pair."""
        self.calls.of(key, lambda v: v[2].removeKey((name,)))
        self.mapped.pop((key, name), None)

    @rule(by_ms=st.integers(1, 60))
    def wait(self, by_ms: int) -> None:
        """Let time pass."""
        self.calls.now_ms += by_ms

    @rule()
    def clean(self) -> None:
        """Remove what has expired."""
        with self.calls.call() as desk:
            forget_expired(desk, self.calls.now_ms)

    @invariant()
    def the_model_is_right(self) -> None:
        """Compare what is alive."""
        now_ms = self.calls.now_ms
        with self.calls.call(*KEYS):
            for key in KEYS:
                self.calls.turn_to(key)
                value, listed, mapped = self.calls.variables
                alive = self.value.get(key, (0, 0))
                assert value.get() == ((alive[0],) if alive[1] > now_ms else None)
                assert [one for (one,) in listed.get()] == [n for n, at in self.listed.get(key, []) if at > now_ms]
                assert listed.exists() == any(at > now_ms for _, at in self.listed.get(key, []))
                pairs = {name: n for (who, name), (n, at) in self.mapped.items() if who == key and at > now_ms}
                assert {name: n for (name,), (n,) in mapped.iterator()} == pairs
                assert mapped.exists() == bool(pairs)

    def teardown(self) -> None:
        """In the end all is gone."""
        self.calls.now_ms += 2 * self.TTL_MS
        self.clean()
        assert self.calls.kept == {}


MortalState.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestMortalState = MortalState.TestCase


def test_updates_close_together_share_an_entry_of_the_index() -> None:
    """Or each would move it."""
    calls = Calls(lambda handle: handle.getValueState("v", "a int", 1_600))
    seen = set()
    for now_ms in range(0, 1_000, 10):
        calls.now_ms = now_ms
        calls.of("a", lambda variable: variable.update((1,)))
        seen |= {entry for entry in calls.kept if entry[0] == EXPIRIES}
        assert len(calls.kept) == 2
    assert len(seen) == 11
