"""Keyed state: what is put is what is found, key by key, and a call that raises leaves no trace."""

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headwater.model.entries import entry_of
from headwater.model.errors import StoreError
from headwater.model.keys import keyed_rows
from headwater.operators.state import KeyedState, OperatorState
from headwater.operators.state_values import WrongState, decode_value, encode_value
from tests.operators.timed_bench import DictStore


class Turns:
    """State over a dict, as turns see it one after the other."""

    def __init__(self) -> None:
        """Begin with nothing kept."""
        self.kept: dict[bytes, bytes] = {}

    def turn(self) -> OperatorState:
        """Begin a turn."""
        return OperatorState(DictStore(self.kept))

    def commit(self, below: OperatorState) -> None:
        """End it."""
        for key, value in below.changes.items():
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value


def state_of(below: OperatorState, *keys: Any) -> KeyedState:
    """Return the state of a batch with these keys."""
    return KeyedState(keyed_rows(pa.record_batch({"k": list(keys)}), ["k"]), below)


def test_state_survives_a_turn() -> None:
    """What is put in one turn is found in the next, by key."""
    turns = Turns()
    below = turns.turn()
    state = state_of(below, "a", "b", "a")
    assert (state.keys, state.codes.tolist()) == (["a", "b"], [0, 1, 0])
    state.put("a", 1)
    state.put("b", [2])
    state.keep()
    turns.commit(below)
    later = state_of(turns.turn(), "b", "c", "a")
    assert later.values() == [[2], None, 1]
    assert (later.get("c", "default"), later.get("a")) == ("default", 1)


def test_what_is_not_put_is_not_kept() -> None:
    """A value that was only changed in place is forgotten."""
    turns = Turns()
    below = turns.turn()
    state_of(below, "a").get("a", [])
    mutable = state_of(below, "a")
    mutable.put("a", [])
    mutable.keep()
    read = state_of(below, "a")
    read.get("a").append(1)
    read.keep()
    assert state_of(below, "a").get("a") == []


@pytest.mark.parametrize("forget", ["delete", "put-none", "put-values-none"])
def test_a_key_can_be_forgotten(forget: str) -> None:
    """By delete, or by putting None."""
    turns = Turns()
    below = turns.turn()
    state = state_of(below, "a")
    state.put("a", 1)
    state.keep()
    turns.commit(below)
    below = turns.turn()
    state = state_of(below, "a")
    if forget == "delete":
        state.delete("a")
    elif forget == "put-none":
        state.put("a", None)
    else:
        state.put_values([None])
    assert state.get("a") is None
    state.keep()
    turns.commit(below)
    assert turns.kept == {}


def test_all_values_are_put_at_once_in_the_order_of_the_keys() -> None:
    """From a list, an array, anything with a length."""
    below = Turns().turn()
    state = state_of(below, "b", "a")
    state.put_values(np.array([1.5, 2.5]))
    state.keep()
    assert state_of(below, "a", "b").values() == [2.5, 1.5]


def test_another_number_of_values_than_keys_is_refused() -> None:
    """With both numbers."""
    with pytest.raises(ValueError, match="3 values were put for 2 keys"):
        state_of(Turns().turn(), "b", "a").put_values([1, 2, 3])


def test_arrays_of_all_keys_come_back_as_they_were_put() -> None:
    turns = Turns()
    below = turns.turn()
    state = state_of(below, "a", "b")
    assert state.arrays(2, default=[0.0, 30.0]).tolist() == [[0.0, 30.0], [0.0, 30.0]]
    state.put_arrays(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert state.get("b").tolist() == [3.0, 4.0], "what was put as arrays is seen as values"
    state.keep()
    turns.commit(below)
    later = state_of(turns.turn(), "c", "b")
    assert later.arrays(2, default=7.0).tolist() == [[7.0, 7.0], [3.0, 4.0]]


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(kind) for kind in ("f8", "f4", "i8", "u1", "?")]),
        hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4),
    )
)
def test_arrays_are_kept_just_as_a_value_each(kept: np.ndarray) -> None:
    """So either way of reading finds what the other put."""
    keys = [f"k{number}" for number in range(len(kept))]
    by_array, by_value = Turns(), Turns()
    below_array, below_value = by_array.turn(), by_value.turn()
    together, apart = state_of(below_array, *keys), state_of(below_value, *keys)
    together.put_arrays(kept)
    apart.put_values(list(kept))
    assert apart.arrays(kept.shape[1:], kept.dtype).tobytes() == kept.tobytes(), "before it is kept"
    together.keep()
    apart.keep()
    by_array.commit(below_array)
    by_value.commit(below_value)
    assert by_array.kept == by_value.kept
    assert state_of(by_value.turn(), *keys).arrays(kept.shape[1:], kept.dtype).tobytes() == kept.tobytes()


@pytest.mark.parametrize("keys", [("a",), ("a", "b")])
def test_arrays_can_be_written_to(keys: tuple[str, ...]) -> None:
    """Also that of a single key, which lies in one piece as it is read."""
    turns = Turns()
    below = turns.turn()
    state = state_of(below, *keys)
    state.put_arrays(np.zeros((len(keys), 2)))
    state.keep()
    turns.commit(below)
    arrays = state_of(turns.turn(), *keys).arrays(2)
    arrays[:, 0] += 1
    assert arrays.tolist() == [[1.0, 0.0]] * len(keys)


def test_a_value_put_after_arrays_counts() -> None:
    turns = Turns()
    below = turns.turn()
    state = state_of(below, "a", "b")
    state.put_arrays(np.zeros((2, 1)))
    state.put("a", np.array([5.0]))
    state.delete("b")
    assert state.arrays(1, default=9.0).tolist() == [[5.0], [9.0]]
    state.keep()
    turns.commit(below)
    assert state_of(turns.turn(), "a", "b").arrays(1, default=9.0).tolist() == [[5.0], [9.0]]


@pytest.mark.parametrize("kept", [1.5, np.zeros(3), np.zeros(2, np.int32), np.zeros((1, 2))])
def test_a_value_of_another_shape_is_named(kept: Any) -> None:
    turns = Turns()
    below = turns.turn()
    state = state_of(below, "a")
    state.put("a", kept)
    state.keep()
    turns.commit(below)
    with pytest.raises(WrongState, match=r"not as float64 of shape \(2,\)"):
        state_of(turns.turn(), "a").arrays(2)


def test_another_number_of_arrays_than_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="3 arrays were put for 1 keys"):
        state_of(Turns().turn(), "a").put_arrays(np.zeros((3, 2)))


def test_true_and_one_are_keys_apart_whoever_came_first() -> None:
    turns = Turns()
    for key in (1, True, "1"):
        below = turns.turn()
        state = state_of(below, key)
        assert state.values() == [None]
        state.put_values([repr(key)])
        state.keep()
        turns.commit(below)


def test_a_key_of_other_rows_is_refused() -> None:
    """Another instance may own it."""
    with pytest.raises(KeyError, match="'c' is not a key of this batch"):
        state_of(Turns().turn(), "a").get("c")


def test_a_later_batch_of_the_same_turn_sees_what_the_earlier_put() -> None:
    """Also what it deleted."""
    turns = Turns()
    turns.kept = dict.fromkeys(_encoded("a", "b"), encode_value(7))
    below = turns.turn()
    first = state_of(below, "a", "b")
    first.put("a", 8)
    first.delete("b")
    first.keep()
    assert state_of(below, "b", "a", "c").values() == [None, 8, None]


def test_a_refused_value_leaves_no_trace_of_those_before_it() -> None:
    """The function is called again on half of the rows; nothing may be counted twice."""
    below = Turns().turn()
    state = state_of(below, "a", "b")
    state.put("a", 1)
    state.put("b", {1, 2})
    with pytest.raises(WrongState):
        state.keep()
    assert below.changes == {}


def test_rows_of_keys_come_in_order() -> None:
    """Each key with the places of its rows."""
    state = state_of(Turns().turn(), "b", "a", "b", None, "b")
    assert [(key, rows.tolist()) for key, rows in state.rows_of_keys()] == [("b", [0, 2, 4]), ("a", [1]), (None, [3])]


def test_nan_null_and_negative_zero_are_keys_like_others() -> None:
    """NaN is one key though it does not equal itself; -0.0 and 0.0 are one key, as in SQL."""
    below = Turns().turn()
    state = state_of(below, float("nan"), None, 0.0, -0.0, float("nan"))
    assert (len(state.keys), state.codes.tolist()) == (3, [0, 1, 2, 2, 0])
    state.put(float("nan"), "nan")
    state.put(None, "null")
    state.put(-0.0, "zero")
    state.keep()
    assert state_of(below, -0.0, None, float("nan")).values() == ["zero", "null", "nan"]


def test_a_number_is_the_same_key_as_whole_number_and_as_fraction() -> None:
    """A column of whole numbers comes out of pandas as fractions as soon as one of them is null."""
    below = Turns().turn()
    whole = state_of(below, 7)
    whole.put(7, "seen")
    whole.keep()
    assert state_of(below, 7.0).values() == ["seen"]
    assert state_of(below, "7").values() == [None]


def test_numpy_scalars_find_their_key() -> None:
    """A user may take the key from an array."""
    state = state_of(Turns().turn(), 7)
    state.put(np.int64(7), "seen")
    assert state.get(np.float64(7.0)) == "seen"


VALUES: list[Any] = [
    True,
    -(2**63),
    2**64 - 1,
    1.5,
    float("inf"),
    "née",
    "",
    b"\x00",
    [1, [2, None]],
    (1, "a", (2,)),
    {"a": {"b": [1]}, 3: None},
    [(1, 2), {"x": (3,)}],
    dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC),
    dt.datetime.fromisoformat("2024-01-01T12:00:00.000001"),
    dt.date(2024, 1, 1),
    dt.time(1, 2, 3),
    dt.timedelta(days=-1, microseconds=1),
    Decimal("1.50"),
    pd.Timestamp("2024-01-01 12:00:00.123456789"),
    pd.Timestamp("2024-01-01", tz="Asia/Kathmandu"),
    pd.Timestamp("1600-01-01").as_unit("s"),
    [pd.Timedelta("-1 days 1 ns")],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_what_it_was(value: Any) -> None:
    """With its type."""
    back = decode_value(encode_value(value))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array(1.5),
        np.array([], dtype=np.float32),
        np.array(["2024-01-01"], dtype="datetime64[us]"),
        np.asfortranarray(np.arange(4.0).reshape(2, 2)),
        np.array([True, False]),
    ],
    ids=["matrix", "scalar", "empty", "times", "fortran", "booleans"],
)
def test_a_numpy_array_comes_back_with_its_shape_and_type(array: Any) -> None:
    """And can be written to."""
    back = decode_value(encode_value({"deep": [array]}))["deep"][0]
    np.testing.assert_array_equal(back, array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.flags.writeable


def test_numpy_scalars_come_back_as_plain_numbers() -> None:
    """Also inside others."""
    assert decode_value(encode_value([np.float64(1.5), np.int32(2), np.bool_(True)])) == [1.5, 2, True]


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        Counter("aab"),
        object(),
        [set()],
        {"a": object()},
        {(1, 2): 3},
        1j,
        pa.scalar(1),
        np.array([object()]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        bytearray(b"x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_something_else_is_refused(value: Any) -> None:
    """With a sentence that says what to use."""
    with pytest.raises(WrongState, match="cannot be kept as state; use"):
        encode_value(value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(value=plain)
def test_any_plain_value_comes_back(value: Any) -> None:
    """However deep."""
    assert decode_value(encode_value(value)) == value


def test_a_value_of_a_kind_that_nobody_knows_is_a_damaged_store() -> None:
    """Written by a later version, perhaps."""
    with pytest.raises(StoreError, match="unknown kind 77"):
        decode_value(b"\xd4\x4d\x00")


def _encoded(*keys: Any) -> list[bytes]:
    turns = Turns()
    below = turns.turn()
    state = state_of(below, *keys)
    state.put_values([0] * len(state.keys))
    state.keep()
    return list(below.changes)


@given(
    stored=st.dictionaries(st.integers(0, 20), st.binary(max_size=2), max_size=12),
    changed=st.dictionaries(st.integers(0, 20), st.none() | st.binary(max_size=2), max_size=12),
    edges=st.tuples(st.integers(0, 21), st.integers(0, 21)),
)
def test_a_scan_sees_the_changes_of_its_turn(
    stored: dict[int, bytes], changed: dict[int, bytes | None], edges: tuple[int, int]
) -> None:
    """In order of time, what was put is there, what was deleted is not, and the store's own is between them."""
    entries = {time: entry_of(3, time, b"k") for time in range(21)}
    state = OperatorState(DictStore({entries[time]: value for time, value in stored.items()}))
    state.changes |= {entries[time]: value for time, value in changed.items()}
    truth = {time: value for time, value in (stored | changed).items() if value is not None}
    found = [(held.time_us, held.value) for held in state.held(3, min(edges), max(edges))]
    assert found == [(time, truth[time]) for time in sorted(truth) if min(edges) <= time < max(edges)]
