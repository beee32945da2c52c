"""Dedup and distinct: what is seen first passes, and is forgotten when the watermark says so."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.entries import ALL_GROUPS
from headwater.model.errors import FlowError
from headwater.model.keys import encode_key, group_of
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.distinct import Dedup, Distinct
from tests.operators.join_oracle import at, is_empty, us
from tests.operators.timed_bench import Row, TimedBench
from tests.operators.turns import TakingTurns

S = 1_000_000
NAN = float("nan")
LONG = "x" * 1_000
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("n", pa.int64())])

Step = list[Row] | int


def dedup(within: int | None = 10) -> Dedup:
    """Return a dedup that forgets after so many seconds."""
    return Dedup(key_columns=("k",), time="t", within_us=None if within is None else within * S)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as a batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def row(key: Any, second: int | None, n: int = 0) -> Row:
    """Return a row."""
    return {"k": key, "t": None if second is None else at(second * S), "n": n}


def play(bench: TimedBench, steps: Sequence[Step]) -> None:
    """Go through rows and watermarks."""
    for step in steps:
        if isinstance(step, int):
            bench.watermark(step)
        elif step:
            bench.rows(batch(step))


def expected(steps: Sequence[Step], within_us: int | None) -> tuple[list[Row], list[Row]]:
    """Return the rows that pass and those that are late, by a dict and a loop."""
    expiry: dict[Any, int] = {}
    watermark_us = BEGINNING_OF_TIME
    passed, late = [], []
    for step in steps:
        if isinstance(step, int):
            watermark_us = step
            expiry = {key: until for key, until in expiry.items() if until > watermark_us}
            continue
        for one in step:
            if one["t"] is None or us(one["t"]) < watermark_us:
                late.append(one)
            elif one["k"] not in expiry:
                expiry[one["k"]] = END_OF_TIME if within_us is None else us(one["t"]) + within_us
                passed.append(one)
    return passed, late


ROWS = st.lists(
    st.builds(row, st.sampled_from(["a", "b", "ü", LONG, None]), st.none() | st.integers(0, 40), st.integers(0, 9)),
    max_size=8,
)


def rising(steps: list[Step]) -> list[Step]:
    highest = BEGINNING_OF_TIME
    made: list[Step] = []
    for step in steps:
        if isinstance(step, int):
            highest = step = max(highest, step)
        made.append(step)
    return made


STEPS = st.lists(ROWS | st.integers(0, 40).map(lambda second: second * S), max_size=12).map(rising)
WITHIN = st.none() | st.integers(1, 15)


@settings(max_examples=100, deadline=None)
@given(STEPS, WITHIN)
def test_dedup_passes_what_a_dict_would_pass(steps: list[Step], within: int | None) -> None:
    """The first of each key, again once it is forgotten; late rows aside; nothing is kept when all is forgotten."""
    bench = TimedBench(dedup(within))
    play(bench, [*steps, END_OF_TIME])
    assert (bench.out["out"], bench.out["late"]) == expected(steps, None if within is None else within * S)
    assert within is None or is_empty(bench)


@settings(max_examples=50, deadline=None)
@given(STEPS, WITHIN)
def test_distinct_passes_the_values_alone(steps: list[Step], within: int | None) -> None:
    """Exact distinct is a dedup that keeps only the columns."""
    limit = None if within is None else within * S
    bench = TimedBench(Distinct(columns=("k",), time="t", within_us=limit))
    play(bench, steps)
    passed, late = expected(steps, limit)
    assert bench.out["out"] == [{"k": one["k"]} for one in passed]
    assert bench.out["late"] == late


@settings(max_examples=50, deadline=None)
@given(STEPS, WITHIN, st.integers(1, 5))
def test_how_rows_are_batched_does_not_matter(steps: list[Step], within: int | None, size: int) -> None:
    """The same rows in smaller batches pass the same, and whichever worker takes them."""
    cut: list[Step] = []
    for step in steps:
        cut += [step] if isinstance(step, int) else [step[at : at + size] for at in range(0, len(step), size)]
    for operator in (
        dedup(within),
        Distinct(columns=("k",), time="t", within_us=within and within * S, method="bloom"),
    ):
        benches = [TimedBench(operator), TimedBench(operator), TimedBench(TakingTurns(operator=operator))]
        for bench, given_steps in zip(benches, [steps, cut, steps], strict=True):
            play(bench, given_steps)
        assert benches[0].out == benches[1].out == benches[2].out


@settings(max_examples=50, deadline=None)
@given(STEPS, WITHIN, st.integers(0, 12), st.integers(1, 1023), st.sampled_from(["exact", "bloom"]))
def test_state_can_be_copied_cut_and_merged(
    steps: list[Step], within: int | None, where: int, at_group: int, method: Any
) -> None:
    """Restored elsewhere, or spread over two instances and merged: the same values pass."""
    operator = Distinct(columns=("k",), time="t", within_us=within and within * S, method=method)
    alone, low = TimedBench(operator), TimedBench(operator)
    play(alone, steps)
    play(low, steps[:where])
    restored = TimedBench(operator, low.kept)
    restored.watermark_us = low.watermark_us
    play(restored, steps[where:])
    assert low.out["out"] + restored.out["out"] == alone.out["out"]
    high = low.cut(range(at_group, ALL_GROUPS.stop))
    low.groups = range(at_group)
    for step in steps[where:]:
        for bench in (low, high):
            mine = step if isinstance(step, int) else [one for one in step if _group(one) in bench.groups]
            play(bench, [mine])
    spread = low.out["out"] + high.out["out"]
    assert sorted(map(repr, spread)) == sorted(map(repr, alone.out["out"]))
    low.merge(high)
    low.groups = ALL_GROUPS
    assert low.rows(batch([row(one["k"], 40) for one in spread])) == [] or within is not None


def _group(one: Row) -> int:
    return group_of(encode_key(one["k"]))


def test_a_key_is_forgotten_as_soon_as_the_watermark_is_there() -> None:
    """As in dropDuplicatesWithinWatermark: at the first row's time and the horizon more."""
    bench = TimedBench(dedup(10))
    assert bench.rows(batch([row("a", 5, 1), row("a", 6, 2)])) == [row("a", 5, 1)]
    bench.watermark(15 * S - 1)
    assert bench.rows(batch([row("a", 20, 3)])) == []
    bench.watermark(15 * S)
    assert bench.rows(batch([row("a", 20, 4)])) == [row("a", 20, 4)]


def test_what_is_forgotten_is_swept_out_while_new_keys_come() -> None:
    """A hundred new keys a second, each remembered for ten: never more than twice as many entries, whoever works."""
    bench = TimedBench(TakingTurns(operator=dedup(10)))
    most = 0
    for second in range(80):
        assert len(bench.rows(batch([row(f"{second}-{nth}", second) for nth in range(100)]))) == 100
        bench.watermark(second * S)
        most = max(most, len(bench.kept))
    assert 1_000 <= most <= 2 * 1_100 + 4 * 256
    assert bench.rows(batch([row("79-0", 80), row("60-0", 80)])) == [row("60-0", 80)]
    bench.end()
    assert is_empty(bench)


def test_null_and_nan_are_values_like_any_other() -> None:
    """One of each passes, and of numbers that are equal too."""
    bench = TimedBench(Dedup(key_columns=("k",)))
    values = [None, NAN, 0.0, -0.0, None, float("nan"), 1.0]
    made = bench.rows([{"k": value, "n": nth} for nth, value in enumerate(values)])
    assert [one["n"] for one in made] == [0, 1, 2, 6]
    assert bench.rows([{"k": value, "n": 0} for value in (None, NAN)]) == []


def test_a_key_with_the_event_time_in_it_is_forgotten_when_its_time_has_passed() -> None:
    """It could only come again as a late row, so nobody has to remember it for ever."""
    bench = TimedBench(Dedup(key_columns=("k", "t"), time="t"))
    assert bench.rows(batch([row("a", 1), row("a", 1), row("a", 2)])) == [row("a", 1), row("a", 2)]
    bench.watermark(3 * S)
    assert is_empty(bench)
    assert bench.rows(batch([row("a", 1)])) == []
    assert bench.out["late"] == [row("a", 1)]


def test_times_at_the_end_of_time_do_not_run_over() -> None:
    """An expiry beyond all instants is the last of them."""
    times = pa.array([END_OF_TIME, 0], pa.timestamp("us"))
    bench = TimedBench(dedup())
    made, _ = bench.operator.open().rows(pa.record_batch({"k": ["a", "b"], "t": times}), 0, bench._moment())
    assert made is not None
    assert made.num_rows == 2


def test_a_bloom_filter_misses_no_more_than_it_promises() -> None:
    """All duplicates are found; of 5,000 new values at an error of 1 %, hardly more than 50 are held for duplicates."""
    operator = Distinct(columns=("id",), method="bloom", capacity=5_000, error=0.01)
    bench = TimedBench(operator)
    passed = []
    for start in range(0, 5_000, 500):
        ids = [f"id-{nth}" for nth in range(start, start + 500)]
        passed += [one["id"] for one in bench.rows([{"id": one} for one in ids + ids])]
    assert len(passed) == len(set(passed))
    assert 4_900 <= len(passed) <= 5_000
    assert sum(map(len, bench.kept.values())) < 5_000 * 6
    assert bench.rows([{"id": one} for one in passed]) == []


def test_a_bloom_filter_forgets_between_one_horizon_and_two() -> None:
    """A value seen at 5 with a horizon of 10 is known at 15 and forgotten at 25."""
    operator = Distinct(columns=("k",), time="t", within_us=10 * S, method="bloom", capacity=1_000)
    bench = TimedBench(operator)
    assert bench.rows(batch([row("a", 5)])) == [{"k": "a"}]
    assert bench.rows(batch([row("a", 15)])) == []
    assert bench.rows(batch([row("a", 25)])) == [{"k": "a"}]
    assert bench.rows(batch([row("a", 16)])) == [], "what comes out of order is held against what is later too"
    bench.watermark(30 * S)
    assert len(bench.kept) == 1
    bench.end()
    assert is_empty(bench)


def test_what_cannot_be_is_refused_when_it_is_built() -> None:
    """A horizon needs a time, a filter needs room."""
    with pytest.raises(FlowError, match="dedup needs the column of event time"):
        Dedup(key_columns=("k",), within_us=5)
    with pytest.raises(FlowError, match="positive"):
        dedup(0)
    with pytest.raises(FlowError, match="'exact' or by 'bloom'"):
        Distinct(columns=("k",), method="guess")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="capacity"):
        Distinct(columns=("k",), method="bloom", capacity=0)
    assert Distinct(columns=("n", "k")).output_schema([SCHEMA]) == pa.schema([("n", pa.int64()), ("k", pa.string())])
    assert Distinct(columns=("k",)).port_schema("late", [SCHEMA]) == SCHEMA
