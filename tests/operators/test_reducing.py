"""Reduce: one row out for each row in, each the fold of its key so far."""

from functools import reduce
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.entries import group_of_entry
from headwater.model.keys import encode_key, group_of, keyed_rows
from headwater.operators.base import OnError
from headwater.operators.chain import NamedOperator, OpenChain, Segment, Turnover
from headwater.operators.reducing import Reduce
from headwater.operators.state import KeyedState, OperatorState
from tests.operators.timed_bench import DictStore, Row


def added(so_far: Row, row: Row) -> Row:
    """Add up n, in place, as a careless user would."""
    so_far["n"] += row["n"]
    return so_far


class Folding:
    """A reduce and the state that its turns have committed."""

    def __init__(self, function: Any = added, kept: dict[bytes, bytes] | None = None) -> None:
        """Begin with this state."""
        self.operator = Reduce(key_columns=("k",), function=function)
        self.kept = dict(kept or {})

    def rows(self, rows: list[Row]) -> list[Row]:
        """Run a turn and commit it."""
        batch = pa.RecordBatch.from_pylist(rows)
        below = OperatorState(DictStore(self.kept))
        state = KeyedState(keyed_rows(batch, ("k",)), below)
        (made,) = self.operator.open().run(batch, state)
        state.keep()
        self.kept |= {entry: value for entry, value in below.changes.items() if value is not None}
        assert made.schema == batch.schema
        found: list[Row] = made.to_pylist()
        return found


ROWS = st.lists(st.fixed_dictionaries({"k": st.sampled_from(["a", "b", None]), "n": st.integers(0, 99)}), max_size=20)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 6), st.integers(1, 1023))
def test_every_row_becomes_the_fold_of_its_key_so_far(rows: list[Row], size: int, at_group: int) -> None:
    """In batches of any size, and with the keys cut to two places in the middle."""
    expected = [
        {"k": row["k"], "n": reduce(int.__add__, (one["n"] for one in rows[: nth + 1] if one["k"] == row["k"]))}
        for nth, row in enumerate(rows)
    ]
    folding = Folding()
    made = [row for start in range(0, len(rows), size) for row in folding.rows(rows[start : start + size])]
    assert made == expected
    half = len(rows) // 2
    first = Folding()
    spread = first.rows(rows[:half]) if half else []
    parts = [
        Folding(kept={entry: value for entry, value in first.kept.items() if (group_of_entry(entry) < at_group) is low})
        for low in (True, False)
    ]
    for row in rows[half:]:
        spread += parts[0 if group_of(encode_key(row["k"])) < at_group else 1].rows([row])
    assert spread == expected


def test_the_first_row_of_a_key_goes_on_as_it_is() -> None:
    """The function is not called for it."""
    folding = Folding(lambda so_far, row: {"k": row["k"], "n": max(so_far["n"], row["n"])})
    assert folding.rows([{"k": "a", "n": 3}]) == [{"k": "a", "n": 3}]
    assert folding.rows([{"k": "a", "n": 1}, {"k": "b", "n": 1}]) == [{"k": "a", "n": 3}, {"k": "b", "n": 1}]


def later(one: Row, other: Row) -> Row:
    """Return the row of the later time."""
    return max(one, other, key=lambda row: row["at"])


def test_times_of_nanoseconds_are_kept_to_the_last_one() -> None:
    """Pandas writes times so, and Python's own end at microseconds."""
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ns", "UTC")), ("took", pa.duration("ns"))])
    rows = [
        pa.RecordBatch.from_arrays([["a"], [at], [took]], schema=schema) for at, took in ((7, 1), (9, None), (8, 3))
    ]
    kept: dict[bytes, bytes] = {}
    turnover = Turnover(lambda index: DictStore(kept))
    made = []
    for batch in rows:
        operator = Reduce(key_columns=("k",), function=later)
        chain = OpenChain("flow", [NamedOperator("reduce", operator)])
        result = chain.run([Segment([(0, batch)])], turnover)
        kept |= {name: value for name, value in result.state[0].items() if value is not None}
        made += [rows for emission in result.emissions for rows in emission.outputs]
    assert [batch["at"].cast(pa.int64()).to_pylist() for batch in made if batch is not None] == [[7], [9], [9]]


def test_what_is_no_row_of_the_same_columns_is_a_dead_letter() -> None:
    """The sentence says what was returned, and state is as if the row had never come."""
    for returned, sentence in [
        (None, "it returned a NoneType; a reduce function returns a row, as a dict"),
        ({"k": "a", "extra": 1}, "its result has column 'extra', against the declared schema (k, n)"),
        ({"k": "a", "n": "text"}, "its result does not fit the declared schema"),
    ]:
        operator = Reduce(key_columns=("k",), function=lambda a, b, made=returned: made, on_error=OnError.DEAD_LETTER)
        chain = OpenChain("flow", [NamedOperator("reduce", operator)])
        rows = pa.RecordBatch.from_pylist([{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 3}])
        result = chain.run([Segment([(0, rows)])], Turnover(lambda index: DictStore({})))
        (emission,) = result.emissions
        assert emission.outputs[0] is not None
        assert emission.outputs[0].to_pylist() == [{"k": "a", "n": 1}, {"k": "b", "n": 3}]
        (letter,) = [row for batch in result.dead[0] for row in batch.to_pylist()]
        assert letter["error"].startswith(sentence)


def test_a_reduce_keeps_the_columns() -> None:
    """What comes out is known as soon as what goes in is."""
    schema = pa.schema([("k", pa.string())])
    operator = Reduce(key_columns=("k",), function=added)
    assert operator.output_schema([schema]) == schema
    assert (operator.key, operator.columns_needed) == (("k",), ("k",))
