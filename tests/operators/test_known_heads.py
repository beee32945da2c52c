"""What a worker knows by heart of the rows that wait in a window join: never anything but what is in the state."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.entries import ALL_GROUPS
from headwater.operators.base import Moment, TimedLogic, TimedOperator
from headwater.operators.joins.head_cache import KnownHeads
from headwater.operators.joins.join_chunks import CHUNKS
from headwater.operators.joins.joins import WindowJoin
from headwater.operators.joins.window_join import HEADS
from headwater.operators.state import Keepsake, OperatorState
from headwater.operators.windows.window_specs import TimeWindow
from tests.operators.join_oracle import at, batch_of
from tests.operators.timed_bench import DictStore, Row, TimedBench

S = 1_000_000
Step = tuple[int, list[Row], bool]  # an input and its rows, and whether the first try fails


def join(how: Any, slide: int) -> WindowJoin:
    """Return a join within windows of four seconds."""
    window = TimeWindow("t", 4 * S, slide * S, 0)
    return WindowJoin(how=how, window=window, left_key=("k",), right_key=("k",), left_time="t", right_time="t")


class RememberingStore(DictStore):
    """A store beside which a worker keeps what it worked out."""

    def __init__(self, kept: dict[bytes, bytes], keepsake: Keepsake) -> None:
        """Hold these entries."""
        super().__init__(kept)
        self.keepsake = keepsake


class Worker(TimedBench):
    """One worker that has the operator open all the time."""

    def __init__(self, operator: TimedOperator) -> None:
        """Begin without state."""
        super().__init__(operator)
        self.logic: TimedLogic = operator.open()
        self.keepsake = Keepsake()
        self.knows = False  # whether it knew the heads by heart after the last turn

    def turn(self, source: int, rows: list[Row] | pa.RecordBatch, watermark_us: int, *, fails: bool) -> None:
        """Take rows and a watermark, as a chain does; a turn that fails is run again."""
        if fails:
            self._try(source, rows, watermark_us)
            self.keepsake.revert()
        state, outputs = self._try(source, rows, watermark_us)
        self.watermark_us = watermark_us
        for made in outputs:
            self._commit(Moment(state), made)
        self.keepsake.settle()
        self.check()

    def _try(self, source: int, rows: list[Row] | pa.RecordBatch, watermark_us: int) -> tuple[OperatorState, list[Any]]:
        state = OperatorState(RememberingStore(self.kept, self.keepsake), ALL_GROUPS)
        outputs = []
        if rows:
            attempt = state.attempt()
            batch = batch_of(source, rows) if isinstance(rows, list) else rows
            outputs.append(self.logic.rows(batch, source, Moment(attempt, self.watermark_us)))
            state.keep(attempt)
        attempt = state.attempt()
        outputs.append(self.logic.advance(Moment(attempt, watermark_us)))
        state.keep(attempt)
        return state, outputs

    def check(self) -> None:
        """Raise if what is known is not what is there."""
        known = self.keepsake.take()
        self.knows = isinstance(known, KnownHeads)
        if isinstance(known, KnownHeads):
            found = known.all()
            heads = dict(zip(found.names, found.heads.values, strict=True))
            assert heads == {name: head for name, head in self.kept.items() if name[0] == HEADS}
            self.keepsake.leave(known)
            self.keepsake.settle()


def rows_of(value: str) -> st.SearchStrategy[list[Row]]:
    """Rows of one side, as seconds after the watermark."""
    keys = st.sampled_from(["a", "b", "z" * 500])
    return st.lists(st.fixed_dictionaries({"k": keys, "t": st.integers(-2, 9), value: st.integers(0, 3)}), max_size=6)


STEPS = st.lists(
    st.tuples(st.just(0), rows_of("x"), st.booleans()) | st.tuples(st.just(1), rows_of("y"), st.booleans()),
    max_size=14,
)


@pytest.mark.parametrize(("how", "slide"), [("inner", 4), ("inner", 2), ("full", 4), ("left", 2)])
@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_worker_that_remembers_makes_the_same_of_its_rows(how: Any, slide: int, steps: list[Step]) -> None:
    """Also where turns fail and are run again."""
    worker, plain = Worker(join(how, slide)), TimedBench(join(how, slide))
    for number, (source, rows, fails) in enumerate(steps):
        timed = [row | {"t": at((number + row["t"]) * S)} for row in rows]
        worker.turn(source, timed, (number + 1) * S, fails=fails)
        if timed:
            plain.rows(batch_of(source, timed), source)
        plain.watermark((number + 1) * S)
    assert worker.out == plain.out


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.float64()])
@pytest.mark.parametrize("value", [pa.int64(), pa.string()])
def test_many_keys_come_and_go(kind: pa.DataType, value: pa.DataType) -> None:
    """Keys that Arrow can look up and others, in batches large and small, more of them in every window."""
    worker, plain = Worker(join("inner", 4)), TimedBench(join("inner", 4))
    rng = np.random.default_rng(5)
    known = 0
    for number in range(30):
        source, count = number % 2, 150 if number % 5 else 20
        keys = pa.array(rng.integers(number * 2, number * 5 + 20, count)).cast(kind)
        times = pa.array(number * S + rng.integers(0, 3 * S, count), pa.timestamp("us", "UTC"))
        values = pa.array(np.arange(count)).cast(value)
        batch = pa.RecordBatch.from_arrays([keys, times, values], ["k", "t", "xy"[source]])
        worker.turn(source, batch, number * S, fails=number == 10)
        plain.rows(batch, source)
        plain.watermark(number * S)
        known += worker.knows
    assert known > 15, "it was known by heart most of the time"
    assert worker.out == plain.out
    assert len(plain.out["out"]) > 1_000


def test_what_is_put_aside_is_known_to_be_aside() -> None:
    """A key with more rows than a head takes: the head that is known is the one that is left."""
    worker, plain = Worker(join("inner", 4)), TimedBench(join("inner", 4))
    for number in range(40):
        source = number % 2
        rows = [{"k": "hot", "t": at(number * S // 4), "xy"[source]: nth} for nth in range(60 if number % 4 else 3)]
        worker.turn(source, rows, number * S // 4, fails=False)
        plain.rows(batch_of(source, rows), source)
        plain.watermark(number * S // 4)
    assert any(name[0] == CHUNKS for name in worker.kept)
    assert isinstance(worker.keepsake.take(), KnownHeads)
    assert worker.out == plain.out
