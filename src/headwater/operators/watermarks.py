"""Watermarks: how far event time has come, made from the rows themselves.

A watermark at t says that no row before t is expected any more. `WithWatermark` keeps it a fixed delay behind the
latest row seen, in whole milliseconds, as Structured Streaming does. What is late must not depend on how rows happened
to be batched: where a row is behind the watermark that the rows before it make, the batch is cut in front of it, and
the watermark travels ahead of the row. Rows that are not late need no cut: no watermark that they could meet makes them
late. (When something is forgotten or a timer fires between two rows, as in a deduplication with a horizon or a
processor, still depends on where batches end, as it does in Structured Streaming.)

A silent input holds everything back that also reads others. `idle` lets the others go on without it; `heartbeat` lets
its watermark go on with the clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME, MILLISECOND, Micros
from headwater.operators.base import Effect, Operator
from headwater.operators.functions import WrongResult


class OperatorTime(msgspec.Struct, array_like=True):
    """How far time has come for one operator of an instance. Committed with every turn that changes it."""

    watermark_us: Micros = BEGINNING_OF_TIME  # of its input; for `with_watermark`, of its output
    wake_us: Micros | None = None  # when it wants to be called by the clock
    latest_us: Micros = BEGINNING_OF_TIME  # the latest row that a `with_watermark` has seen
    heard_us: Micros = 0  # when, by the clock
    exact_us: Micros = BEGINNING_OF_TIME  # the last watermark that was sent ahead of a late row
    idle: bool = False


class MarkedRows(NamedTuple):
    """Rows between two watermarks."""

    rows: pa.RecordBatch | None
    watermark_us: int
    exact: bool


@dataclass(frozen=True, kw_only=True)
class WithWatermark(Operator):
    """Makes the watermark of a stream from the event times of its rows."""

    kind: ClassVar[str] = "with_watermark"
    effect: ClassVar[Effect] = Effect.KEEPS
    column: str
    delay_us: int
    idle_us: int | None = None
    heartbeat_us: int | None = None

    def open(self) -> "WatermarkLogic":
        """Return the logic."""
        return WatermarkLogic(self)

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The event time."""
        return (self.column,)

    @property
    def state_settings(self) -> Mapping[str, object]:
        """How far event time has come is kept too."""
        return {"column": self.column}

    @property
    def needs_clock(self) -> bool:
        """Whether it acts though no row arrives."""
        return self.idle_us is not None or self.heartbeat_us is not None

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Watermarks leave the columns alone."""
        return inputs[0]


class WatermarkLogic:
    """Cuts batches at late rows, and says how far event time has come."""

    def __init__(self, config: WithWatermark) -> None:
        """Keep the configuration."""
        self._config = config

    def stretches(self, batch: pa.RecordBatch, time: OperatorTime, now_us: int) -> list[MarkedRows]:
        """Return the rows with the watermarks between and behind them, and note in `time` how far it has come."""
        times, known = micros_of(batch, self._config.column)
        seen = times if known is None else times[known]
        latest_us = max(time.latest_us, int(seen.max())) if len(seen) else time.latest_us
        watermark_us = max(time.watermark_us, self._watermark(latest_us))
        stretches: list[MarkedRows] = []
        start = 0
        if len(seen) and int(seen.min()) < watermark_us:  # else no row is late by any of the rows before it
            stretches, start = self._cut(batch, times, known, time)
        time.latest_us, time.watermark_us = latest_us, watermark_us
        time.heard_us, time.idle = now_us, False
        time.wake_us = self._wake_us(time, now_us)
        stretches.append(MarkedRows(batch.slice(start) if start else batch, watermark_us, False))
        return stretches

    def _cut(
        self,
        batch: pa.RecordBatch,
        times: npt.NDArray[np.int64],
        known: npt.NDArray[np.bool_] | None,
        time: OperatorTime,
    ) -> tuple[list[MarkedRows], int]:
        """Return the stretches that end in front of a late row, and where the rows behind the last of them begin."""
        counted = times if known is None else np.where(known, times, BEGINNING_OF_TIME)
        behind = np.maximum.accumulate(counted)  # the latest row up to and with each
        before = np.maximum(np.concatenate(([time.latest_us], behind[:-1])), time.latest_us)
        watermarks = np.maximum(self._watermarks(before), time.watermark_us)
        late = times < watermarks if known is None else known & (times < watermarks)
        cuts: list[MarkedRows] = []
        start = 0
        for row in np.flatnonzero(late).tolist():
            watermark_us = int(watermarks[row])
            if watermark_us > time.exact_us:  # else the last one still holds
                rows = batch.slice(start, row - start) if row > start else None
                time.exact_us = watermark_us
                start = row
                cuts.append(MarkedRows(rows, watermark_us, True))
        return cuts, start

    def _watermarks(self, latest: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the watermarks that latest rows make, without running over at the beginning of time."""
        whole = latest - latest % MILLISECOND
        lowest = BEGINNING_OF_TIME + self._config.delay_us + MILLISECOND
        return np.where(latest <= lowest, BEGINNING_OF_TIME, np.maximum(whole, lowest) - self._config.delay_us)

    def _watermark(self, latest_us: int) -> int:
        """Return the watermark that a latest row makes."""
        made = latest_us - latest_us % MILLISECOND - self._config.delay_us
        return made if made > BEGINNING_OF_TIME else BEGINNING_OF_TIME

    def wants(self, time: OperatorTime, now_us: int) -> bool:
        """Whether the clock means something to it now; before it has ever been called, it has to begin."""
        if not self._config.needs_clock or time.watermark_us == END_OF_TIME:
            return False
        return time.wake_us is None or time.wake_us <= now_us

    def tick(self, time: OperatorTime, now_us: int) -> None:
        """Note that the clock has come so far though no row has."""
        config = self._config
        if time.heard_us == 0:
            time.heard_us = now_us
        silent_us = now_us - time.heard_us
        if config.idle_us is not None and silent_us >= config.idle_us:
            time.idle = True
        if config.heartbeat_us is not None and silent_us >= config.heartbeat_us and time.latest_us > BEGINNING_OF_TIME:
            beats_us = silent_us - silent_us % config.heartbeat_us
            made = self._watermark(time.latest_us)
            if made > BEGINNING_OF_TIME:
                time.watermark_us = max(time.watermark_us, min(made + beats_us, END_OF_TIME - 1))
        time.wake_us = self._wake_us(time, now_us)

    def _wake_us(self, time: OperatorTime, now_us: int) -> int | None:
        config = self._config
        wanted = []
        if config.idle_us is not None and not time.idle:
            wanted.append(time.heard_us + config.idle_us)
        if config.heartbeat_us is not None:
            wanted.append(now_us - (now_us - time.heard_us) % config.heartbeat_us + config.heartbeat_us)
        return min(wanted, default=None)


def micros_of(batch: pa.RecordBatch, column: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """Return the event times of a batch in microseconds, and which of them are known; None if all are."""
    if column not in batch.schema.names:
        raise WrongResult(f"needs column {column!r}, but the rows have only: {', '.join(batch.schema.names)}")
    values = batch.column(column)
    kind = values.type
    if not pa.types.is_timestamp(kind):
        raise WrongResult(f"column {column!r} is a {kind}; event time must be a timestamp")
    if kind.unit != "us":
        try:
            values = pc.cast(values, pa.timestamp("us", kind.tz), safe=kind.unit != "ns")
        except pa.ArrowInvalid:
            raise WrongResult(f"column {column!r} has a time more than 290,000 years from now; correct it") from None
    if values.null_count == 0:
        return values.view(pa.int64()).to_numpy(), None
    known = values.is_valid().to_numpy(zero_copy_only=False)
    return values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), known
