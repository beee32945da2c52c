"""`process(p)`: PySpark's own stateful processors, run unchanged.

A processor written for `transformWithStateInPandas` or `transformWithState` is called as PySpark calls it. The rows of
a batch are given key by key, keys in order of first appearance, rows in order of arrival. Timers that have expired fire
in order of time, each once; those that are registered meanwhile wait for the next time, even if their time is past.

What differs from Spark: a turn is not a micro-batch. A timer fires as soon as the watermark or the clock has reached
it, not after the rows of the next batch. When the input has ended, all timers fire, also those by the clock, since
nothing would wake them later; what is registered then never fires. A processor is initialised once in each worker and
closed when the input ends, not once for each batch: what it keeps in itself may live from turn to turn, or may not.
"""

import copy
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.entries import Suffixes, key_suffix, space_prefix
from headwater.model.errors import FlowError
from headwater.model.keys import encode_key, keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.functions import WrongResult, table_to_batch
from headwater.operators.processors.processor_entries import (
    EXPIRIES,
    PRESENT,
    SEEDED,
    TIMERS,
    CallEntries,
    is_hashed,
    part_of,
)
from headwater.operators.processors.processor_rows import GIVEN, MADE, Keys, Made, key_schema
from headwater.operators.processors.processor_state import ProcessorHandle, ProcessorPhase, due_timers, forget_expired
from headwater.operators.processors.spark_names import ExpiredTimerInfo, TimerValues

ProcessorForm = Literal["pandas", "rows"]
TimeMode = Literal["none", "processingtime", "eventtime"]

LAST_WATERMARK_MS: Final = 253_402_300_799_999  # the end of the year 9999, the last that Python's dates can tell

_KEY_SCHEMA: Final = "key schema"
_MILLISECOND: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Process(TimedOperator):
    """A `pyspark.sql.streaming.StatefulProcessor`, called for each key of a batch and for each timer that expires."""

    kind: ClassVar[str] = "process"
    key_columns: tuple[str, ...]
    processor: Any  # a StatefulProcessor, or anything with its methods
    schema: pa.Schema
    form: ProcessorForm = "pandas"
    time_mode: TimeMode = "none"
    event_time: str | None = None  # in time mode eventtime, rows that are late by this column are not handled
    initial_state: pa.Table | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        if self.form not in ("pandas", "rows"):
            raise FlowError(f"form={self.form!r} is unknown; a processor takes 'pandas' DataFrames or 'rows'")
        if self.time_mode not in ("none", "processingtime", "eventtime"):
            raise FlowError(f"time mode {self.time_mode!r} is unknown; use 'none', 'processingtime' or 'eventtime'")
        for column in self.key_columns:
            if self.initial_state is not None and column not in self.initial_state.column_names:
                raise FlowError(f"the initial state has no column {column!r}, which is part of the key")

    def open(self) -> TimedLogic:
        """Return the logic, with a processor of its own."""
        return ProcessLogic(self)

    @property
    def ports(self) -> tuple[str, ...]:
        """Rows that come too late leave by a port of their own."""
        return ("out", "late")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Timers are of one time or the other; the variables are the processor's own."""
        return {"time_mode": self.time_mode}

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key has to be there, and the event time if rows are judged by it."""
        return self.key_columns if self.event_time is None else (*self.key_columns, self.event_time)

    @property
    def needs_watermark(self) -> bool:
        """Timers in event time fire by the watermark."""
        return self.time_mode == "eventtime"

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return what was declared."""
        return self.schema

    def port_schema(self, port: str, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Late rows leave as they came."""
        return inputs[0] if port == "late" else self.schema


def form_of_processor(processor: Any) -> ProcessorForm:
    """Read from the annotations of `handleInputRows` whether it takes rows; without any it takes DataFrames."""
    signature = inspect.signature(processor.handleInputRows)
    given = list(signature.parameters.values())[1:2]
    for annotation in (*(one.annotation for one in given), signature.return_annotation):
        written = annotation if isinstance(annotation, str) else str(annotation)
        if "DataFrame" in written:
            return "pandas"
        if re.search(r"\bRow\b", written):
            return "rows"
    return "pandas"


class _KeyRows(NamedTuple):
    """One key of a batch, and where its rows are once they are in order of their keys."""

    key: Any
    part: bytes  # what names the key within entries, its group first
    start: int
    end: int


class _Grouped(NamedTuple):
    """A batch by key: the order that puts the rows of a key together, and each key's place in it."""

    order: npt.NDArray[np.intp]
    keys: list[_KeyRows]


class ProcessLogic:
    """Runs a processor."""

    def __init__(self, config: Process) -> None:
        """Keep the configuration; the processor is made when the first call comes, with its state at hand."""
        self._config = config
        self._suffixes = Suffixes()
        self._handle = ProcessorHandle(config.time_mode)
        self._processor: Any = None
        self._initial: tuple[pa.RecordBatch, _Grouped] | None = None
        if config.initial_state is not None and config.initial_state.num_rows:
            batch = table_to_batch(config.initial_state)
            self._initial = batch, self._by_key(batch)

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Call the processor for each key."""
        on_time, late = self._by_lateness(batch, moment)
        if not on_time.num_rows:
            return None, late
        made = MADE[self._config.form](self._config.schema)
        with self._at_work(moment) as desk:
            keys = self._keys(moment, on_time.schema)
            self._handle_rows(on_time, desk, keys, self._times(moment), made)
            out = made.batch()
        return out, late

    def advance(self, moment: Moment) -> Outputs:
        """Let the timers fire whose time has come, and remove what has outlived its own."""
        ended = moment.watermark_us == END_OF_TIME
        if self._config.time_mode == "none" and not ended:
            return None, None
        made = MADE[self._config.form](self._config.schema)
        with self._at_work(moment) as desk:
            if ended:
                self._handle.phase = ProcessorPhase.ENDING
            self._fire(moment, desk, made)
            if self._config.time_mode == "processingtime":
                forget_expired(desk, moment.now_us // _MILLISECOND)
            if ended:
                self._close()
            out = made.batch()
        return out, None

    def wake_us(self, moment: Moment) -> int | None:
        """Return when the next timer fires by the clock, or a value expires; now if a timer's event time is past."""
        if self._config.time_mode == "none" or moment.watermark_us == END_OF_TIME:
            return None
        if self._config.time_mode == "eventtime":
            first_ms = moment.state.first_us(TIMERS)
            return moment.now_us if first_ms is not None and first_ms <= _watermark_ms(moment) else None
        due = [first for space in (TIMERS, EXPIRIES) if (first := moment.state.first_us(space)) is not None]
        return min(due) * _MILLISECOND if due else None

    def _by_lateness(self, batch: pa.RecordBatch, moment: Moment) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Part the rows whose event time the watermark has reached, as Spark does; rows without one are not late."""
        column = self._config.event_time
        if column is None or self._config.time_mode != "eventtime" or moment.watermark_us == BEGINNING_OF_TIME:
            return batch, None
        kind = batch.schema.field(column).type
        if not pa.types.is_timestamp(kind):
            raise WrongResult(f"column {column!r} is a {kind} and no event time; make it a timestamp first")
        times = batch.column(column).cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
        is_late = pc.fill_null(pc.less_equal(times, _watermark_ms(moment) * _MILLISECOND), False)
        late = batch.filter(is_late)
        return (batch.filter(pc.invert(is_late)), late) if late.num_rows else (batch, None)

    @contextmanager
    def _at_work(self, moment: Moment) -> Iterator[CallEntries]:
        """Lay a desk for one call, with a processor behind it; after an error neither is used again."""
        desk = CallEntries(moment.state)
        try:
            self._handle.lay(desk, moment.now_us // _MILLISECOND)
            if self._processor is None:
                self._open()
            self._give_initial_state(moment, desk)
            yield desk
            desk.hand_over()
        except BaseException:
            self._handle, self._processor = ProcessorHandle(self._config.time_mode), None
            raise
        finally:
            self._handle.clear_away()

    def _open(self) -> None:
        self._processor = copy.deepcopy(self._config.processor)
        self._processor.init(self._handle)
        self._handle.phase = ProcessorPhase.RUNNING

    def _close(self) -> None:
        self._handle.turn_to(b"", b"")
        self._handle.phase = ProcessorPhase.CLOSED
        self._processor.close()
        self._handle, self._processor = ProcessorHandle(self._config.time_mode), None

    def _handle_rows(
        self, batch: pa.RecordBatch, desk: CallEntries, keys: Keys, times: TimerValues, made: Made
    ) -> None:
        grouped = self._by_key(batch)
        given = GIVEN[self._config.form](batch, grouped.order)
        desk.fetch(self._handle.entries(one.part for one in grouped.keys))
        for one in grouped.keys:
            self._turn_to(one)
            rows = given.of_key(one.start, one.end)
            made.add(self._processor.handleInputRows(keys.shown(one.key), rows, times), "handleInputRows")

    def _by_key(self, batch: pa.RecordBatch) -> _Grouped:
        """Group the rows of a batch by key, in order of first appearance."""
        keyed = keyed_rows(batch, self._config.key_columns)
        ends = np.cumsum(np.bincount(keyed.codes, minlength=len(keyed.keys))).tolist()
        parts = map(part_of, self._suffixes.of(keyed.keys))
        found = map(_KeyRows, keyed.keys, parts, [0, *ends], ends)
        return _Grouped(np.argsort(keyed.codes, kind="stable"), list(found))

    def _turn_to(self, one: _KeyRows) -> None:
        self._handle.turn_to(one.part, encode_key(one.key) if is_hashed(one.part) else one.part[2:])

    def _fire(self, moment: Moment, desk: CallEntries, made: Made) -> None:
        ended = moment.watermark_us == END_OF_TIME
        times = self._times(moment)
        by_clock = self._config.time_mode == "processingtime"
        due = due_timers(desk, None if ended else times.now_ms if by_clock else times.watermark_ms)
        if not due:
            return
        keys = self._keys(moment)
        parts = [part_of(key_suffix(timer.key)) for timer in due]
        desk.fetch(self._handle.entries(dict.fromkeys(parts)))
        for timer, part in zip(due, parts, strict=True):
            self._handle.turn_to(part, timer.key)
            results = self._processor.handleExpiredTimer(
                key=keys.from_bytes(timer.key), timerValues=times, expiredTimerInfo=ExpiredTimerInfo(timer.expiry_ms)
            )
            made.add(results, "handleExpiredTimer")
            self._handle.deleteTimer(timer.expiry_ms)

    def _keys(self, moment: Moment, schema: pa.Schema | None = None) -> Keys:
        """Return how keys are shown, by the types of these rows, which timers will need too, or by those of earlier."""
        kept = moment.state.shared(_KEY_SCHEMA)
        known = None if kept is None else pa.ipc.read_schema(pa.py_buffer(kept))
        if schema is not None:
            known = key_schema(schema, self._config.key_columns, known)
            moment.state.share(_KEY_SCHEMA, known.serialize().to_pybytes())
        assert known is not None, "a timer was registered, but not which types its key has"
        return Keys(known, self._config.form)

    def _times(self, moment: Moment) -> TimerValues:
        if self._config.time_mode == "none":
            return TimerValues()
        return TimerValues(moment.now_us // _MILLISECOND, _watermark_ms(moment))

    def _give_initial_state(self, moment: Moment, desk: CallEntries) -> None:
        """Give the processor the initial state of those of our key groups that have not had theirs yet."""
        if self._initial is None:
            return
        batch, grouped = self._initial
        ours = {one.part[:2] for one in grouped.keys if int.from_bytes(one.part[:2], "big") in moment.state.groups}
        markers = {group: space_prefix(SEEDED, 0) + group for group in ours}
        desk.fetch(markers.values())
        new = {group for group, marker in markers.items() if desk.read(marker) is None}
        if not new:
            return
        keys, given = self._keys(moment, batch.schema), GIVEN[self._config.form](batch, grouped.order)
        for one in grouped.keys:
            if one.part[:2] in new:
                self._turn_to(one)
                for state in given.of_key(one.start, one.end):
                    self._processor.handleInitialState(keys.shown(one.key), state, self._times(moment))
        for group in new:
            desk.put(markers[group], PRESENT)
        desk.hand_over()  # timers are looked for in the turn


def _watermark_ms(moment: Moment) -> int:
    """Return the watermark as Spark tells it: 0 until it is known, and the end of the calendar when all has come."""
    if moment.watermark_us == END_OF_TIME:
        return LAST_WATERMARK_MS
    return max(0, moment.watermark_us // _MILLISECOND)
