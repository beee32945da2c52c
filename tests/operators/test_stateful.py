"""Stateful operators in every form: the state of a key goes from row to row and from turn to turn."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headwater.model.errors import UserCodeError
from headwater.operators.state import KeyedState
from tests.operators.bench import Bench, Row, error_of, keyed, letters, made


def count_batch(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
    """Number the rows of each key, by Arrow."""
    seen = state.values(default=0)
    nth = []
    for code in state.codes.tolist():
        seen[code] += 1
        nth.append(seen[code])
    state.put_values(seen)
    return {"k": batch["k"], "nth": nth}


def count_frame(frame: pd.DataFrame, state: KeyedState) -> pd.DataFrame:
    """Number the rows of each key, by pandas."""
    before = np.array(state.values(default=0))[state.codes]
    nth = before + frame.groupby(state.codes).cumcount() + 1
    state.put_values(np.array(state.values(default=0)) + np.bincount(state.codes, minlength=len(state.keys)))
    return frame.assign(nth=nth)


def count_row(row: dict[str, Any], seen: int | None) -> tuple[Row, int]:
    """Number the rows of each key, by row."""
    nth = (seen or 0) + 1
    return {"k": row["k"], "nth": nth}, nth


FORMS = pytest.mark.parametrize("function", [count_batch, count_frame, count_row])


def nths(rows: list[Row]) -> list[int]:
    """Return the numbers that rows were given."""
    return [row["nth"] for row in rows]


@FORMS
def test_a_key_is_counted_across_rows_and_turns(function: Any) -> None:
    """In every form."""
    bench = Bench(keyed("k").stateful(function))
    assert nths(made(bench.run([{"k": "a"}, {"k": "b"}, {"k": "a"}]))) == [1, 1, 2]
    assert nths(made(bench.run([{"k": "b"}, {"k": "a"}]))) == [2, 3]


@FORMS
@pytest.mark.parametrize(
    "key",
    [
        pa.array([None, "x", None, "x"]),
        pa.array([float("nan"), 1.5, float("nan"), 1.5]),
        pa.array([0.0, 2.0, -0.0, 2.0]),
        pa.array(["", " ", "", " "]),
        pa.array(["née", "nee", "née", "nee"]),
        pa.array(["x" * 5_000, "y" * 5_000] * 2),
        pa.array([True, False] * 2),
        pa.array([b"\x00", b""] * 2),
        pa.array([Decimal("1.50"), Decimal("1.51")] * 2),
        pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 2)] * 2),
        pa.array([1, 2] * 2, pa.timestamp("s")),
        pa.array([1_000, 2_000] * 2, pa.timestamp("ns", "Europe/Berlin")),
        pa.array([1_000, 2_000] * 2, pa.time64("ns")),
        pa.array([1, 2] * 2, pa.duration("ms")),
        pa.array(["a", "b"] * 2).dictionary_encode(),
        pa.array([2**62, 2**62 + 1] * 2, pa.uint64()),
        pa.array([1e300, 1e301] * 2),
    ],
    ids=lambda array: f"{array.type}-{str(array[0])[:10]}",
)
def test_keys_of_every_kind_are_told_apart(function: Any, key: pa.Array) -> None:
    """The first and third row have one key, the second and fourth another; so too in the next turn."""
    bench = Bench(keyed("k").stateful(function))
    batch = pa.record_batch({"k": key})
    assert nths(made(bench.run(batch))) == [1, 1, 2, 2]
    assert nths(made(bench.run(batch))) == [3, 3, 4, 4]
    assert len(bench.state[0]) == 2


def test_a_key_may_have_several_columns() -> None:
    """Their order matters, and where one ends and the next begins."""
    bench = Bench(keyed("a", "b").stateful(lambda row, seen: ({"nth": (seen or 0) + 1}, (seen or 0) + 1), form="rows"))
    rows = [{"a": a, "b": b} for a, b in [("x", "yz"), ("xy", "z"), ("yz", "x"), (None, "x"), ("x", None), ("x", "yz")]]
    assert nths(made(bench.run(rows))) == [1, 1, 1, 1, 1, 2]


def test_keys_are_given_in_order_of_appearance() -> None:
    """With several columns as tuples."""
    seen: list[Any] = []

    def note(batch: pa.RecordBatch, state: KeyedState) -> pa.RecordBatch:
        seen.append((state.keys, state.codes.tolist()))
        return batch

    Bench(keyed("a", "b").stateful(note)).run([{"a": 2, "b": "x"}, {"a": 1, "b": "x"}, {"a": 2, "b": "x"}])
    assert seen == [([(2, "x"), (1, "x")], [0, 1, 0])]


def test_a_row_function_may_send_on_a_row_several_or_none() -> None:
    """And forgets its key by returning None for it."""
    answers: list[Any] = [({"n": 1}, 1), ([{"n": 2}, {"n": 3}], 2), (None, 3), ([], None), ({"n": 4}, None)]
    seen: list[Any] = []

    def play(row: dict[str, Any], value: Any) -> Any:
        seen.append(value)
        return answers[row["i"]]

    bench = Bench(keyed("k").stateful(play))
    assert made(bench.run([{"k": 0, "i": i} for i in range(5)])) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert seen == [None, 1, 2, 3, None]
    assert bench.state[0] == {}


def test_a_declared_schema_holds_for_stateful_operators_too() -> None:
    """In every form."""
    schema = pa.schema([("k", pa.string()), ("nth", pa.int32())])
    for function in (count_batch, count_frame, count_row):
        batch = Bench(keyed("k").stateful(function, schema=schema)).run([{"k": "a"}]).emissions[0].outputs[0]
        assert batch is not None
        assert batch.schema == schema


def fails_on_bad(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
    """Count, and raise only after the state has been put."""
    out = count_batch(batch, state)
    if any(batch["bad"].to_pylist()):
        raise ValueError("bad row")
    return out


def fails_on_bad_row(row: dict[str, Any], seen: int | None) -> tuple[Row, int]:
    """Count, and raise on a bad row."""
    if row["bad"]:
        raise ValueError("bad row")
    return count_row(row, seen)


@pytest.mark.parametrize("function", [fails_on_bad, fails_on_bad_row])
@pytest.mark.parametrize("bad", [{0}, {3}, {6}, {2, 3}, {0, 6}, {1, 2, 5}])
def test_a_row_that_raises_leaves_no_trace_in_the_state(function: Any, bad: set[int]) -> None:
    """The others are counted as if it had never been there, each once."""
    bench = Bench(keyed("k").stateful(function, on_error="dead-letter"))
    result = bench.run([{"k": "ab"[i % 2], "i": i, "bad": i in bad} for i in range(7)])
    good = ["ab"[i % 2] for i in range(7) if i not in bad]
    assert nths(made(result)) == [good[: place + 1].count(key) for place, key in enumerate(good)]
    assert len(letters(result)) == len(bad)
    after = made(bench.run([{"k": "a", "bad": False}, {"k": "b", "bad": False}]))
    assert nths(after) == [good.count("a") + 1, good.count("b") + 1]


def test_a_value_that_cannot_be_kept_dies_with_its_rows_only() -> None:
    """The keys beside it keep theirs, once."""

    def keep(row: dict[str, Any], seen: Any) -> Any:
        return {"k": row["k"], "nth": (seen or 0) + 1}, {1} if row["k"] == "bad" else (seen or 0) + 1

    bench = Bench(keyed("k").stateful(keep, on_error="dead-letter"))
    result = bench.run([{"k": "a"}, {"k": "bad"}, {"k": "a"}])
    assert nths(made(result)) == [1, 2]
    assert "a set cannot be kept as state" in letters(result)[0]["error"]


def test_a_stopping_flow_changes_no_state() -> None:
    """The turn is not committed."""
    bench = Bench(keyed("k").stateful(fails_on_bad))
    with pytest.raises(UserCodeError, match="bad row"):
        bench.run([{"k": "a", "bad": False}, {"k": "a", "bad": True}])
    assert bench.state[0] == {}


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda row, value: row, "returns a pair"),
        (lambda row, value: (row, value, 1), "returns a pair"),
        (lambda row, value: ("text", 1), "a row must be a dict of column to value, not a str"),
        (lambda row, value: (row, object()), "a object cannot be kept as state"),
    ],
)
def test_a_wrong_answer_of_a_row_function_is_explained(function: Any, sentence: str) -> None:
    """What it should have been."""
    assert sentence in error_of(lambda **how: keyed("k").stateful(function, form="rows", **how), [{"k": 1}])


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (pa.array([[1]]), "column 'k' is a list<item: int64> and cannot be a key"),
        (pa.array([{"a": 1}]), "column 'k' is a struct<a: int64> and cannot be a key"),
        (pa.array([1], pa.timestamp("ns")), "column 'k' has nanoseconds and cannot be a key"),
    ],
)
def test_a_column_that_cannot_be_a_key_is_named(key: pa.Array, sentence: str) -> None:
    """Before the function is called."""
    batch = pa.record_batch({"k": key})
    assert sentence in error_of(lambda **how: keyed("k").stateful(count_batch, **how), batch)


def test_a_missing_key_column_is_named() -> None:
    """With those that are there."""
    error = error_of(lambda **how: keyed("k").stateful(count_batch, **how), [{"x": 1}])
    assert error == "needs column 'k', but the rows have only: x"


def test_two_stateful_operators_of_a_chain_keep_their_state_apart() -> None:
    """Under the same key."""
    bench = Bench(keyed("k").stateful(count_row), keyed("k").stateful(count_row))
    bench.run([{"k": "a"}, {"k": "a"}])
    result = bench.run([{"k": "a"}])
    assert (nths(made(result)), len(bench.state[0]), len(bench.state[1])) == ([3], 1, 1)
