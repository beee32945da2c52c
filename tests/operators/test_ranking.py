"""The running ranking: what sorting all rows so far would give, sent on whenever it changes."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.entries import ALL_GROUPS
from headwater.model.errors import FlowError
from headwater.model.keys import encode_key, group_of
from headwater.operators.functions import WrongResult
from headwater.operators.ranking import TopK
from tests.operators.join_oracle import comparable
from tests.operators.timed_bench import Row, TimedBench
from tests.operators.turns import TakingTurns

NAN = float("nan")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("s", pa.string())])


def top(k: int = 2, *, largest: bool = True, by: str = "v") -> TopK:
    """Return a ranking of so many rows by key."""
    return TopK(key_columns=("k",), k=k, by=by, largest=largest)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as a batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def best(rows: Sequence[Row], key: Any, k: int, *, largest: bool) -> list[Row]:
    """Return the best rows of a key by sorting all: nulls last, NaN above all numbers, equal values as they came."""

    def place(row: Row) -> tuple[float, ...]:
        value = row["v"]
        if value is None:
            return (1,)
        above = (1.0, 0.0) if value != value else (0.0, value)
        return (0, -above[0], -above[1]) if largest else (0, *above)

    return sorted((row for row in rows if row["k"] == key), key=place)[:k]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", None, "z" * 500]),
            "v": st.sampled_from([None, NAN, 1.0, 2.0, 2.0, -3.0, float("inf"), float("-inf")]),
            "s": st.none() | st.text(max_size=3),
        }
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ROWS, max_size=6), st.integers(1, 4), st.booleans())
def test_the_ranking_of_a_key_is_sent_on_whenever_it_changes(batches: list[list[Row]], k: int, largest: bool) -> None:
    """For each key of a batch, all its rows anew if any of the best is new, and nothing if not."""
    bench = TimedBench(TakingTurns(operator=top(k, largest=largest)))
    seen: list[Row] = []
    for rows in batches:
        expected: list[Row] = []
        old = {id(row) for row in seen}
        seen += rows
        for key in dict.fromkeys(row["k"] for row in rows):
            now = best(seen, key, k, largest=largest)
            if not old.issuperset(map(id, now)):
                expected += [row | {"rank": rank} for rank, row in enumerate(now, 1)]
        assert comparable(bench.rows(batch(rows))) == comparable(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(ROWS, max_size=6), st.integers(0, 6), st.integers(1, 1023))
def test_state_can_be_copied_cut_and_merged(batches: list[list[Row]], where: int, at_group: int) -> None:
    """Restored elsewhere, or spread over two instances: every key's rankings come out the same, in order."""
    alone, low = TimedBench(top()), TimedBench(top())
    for rows in batches:
        alone.rows(batch(rows))
    for rows in batches[:where]:
        low.rows(batch(rows))
    restored = TimedBench(top(), low.kept)
    for rows in batches[where:]:
        restored.rows(batch(rows))
    assert comparable(low.out["out"] + restored.out["out"]) == comparable(alone.out["out"])
    high = low.cut(range(at_group, ALL_GROUPS.stop))
    low.groups = range(at_group)
    for rows in batches[where:]:
        for bench in (low, high):
            mine = [row for row in rows if group_of(encode_key(row["k"])) in bench.groups]
            if mine:
                bench.rows(batch(mine))
    for key in ("a", "b", None, "z" * 500):
        spread = [row for row in low.out["out"] + high.out["out"] if row["k"] == key]
        assert comparable(spread) == comparable([row for row in alone.out["out"] if row["k"] == key])
    low.merge(high)
    assert low.kept == restored.kept


def test_any_column_with_an_order_can_be_ranked_by() -> None:
    """Texts, booleans, dates, codes of texts; equal ones as they came."""
    for values, best in [
        (pa.array(["b", None, "c", "a"]), [2, 0]),
        (pa.array([False, True, None, True]), [1, 3]),
        (pa.array([3, 1, None, 2], pa.date32()), [0, 3]),
        (pa.array(["b", None, "c", "a"]).dictionary_encode(), [2, 0]),
        (pa.nulls(4), [0, 1]),
    ]:
        bench = TimedBench(top())
        made = bench.rows(pa.record_batch({"k": ["x"] * 4, "v": values, "n": [0, 1, 2, 3]}))
        assert [row["n"] for row in made] == best


def test_columns_may_widen_between_batches() -> None:
    """Rows kept since v was a whole number are ranked with fractions, and have nulls in a column that is new."""
    bench = TimedBench(top())
    bench.rows([{"k": "a", "v": 1}, {"k": "a", "v": 2}])
    assert bench.rows([{"k": "a", "v": 1.5, "s": "new"}]) == [
        {"k": "a", "v": 2.0, "s": None, "rank": 1},
        {"k": "a", "v": 1.5, "s": "new", "rank": 2},
    ]


def test_what_cannot_be_ranked_is_refused() -> None:
    """No rows at all, and a column of the name that the rank has."""
    with pytest.raises(FlowError, match="at least one row"):
        top(0)
    with pytest.raises(WrongResult, match="'rank'"):
        TimedBench(top()).rows([{"k": "a", "v": 1, "rank": 1}])
    assert top().output_schema([SCHEMA]) == pa.schema([*SCHEMA, ("rank", pa.int64())])
