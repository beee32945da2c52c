"""The join of rows that lie in the same window.

A row waits in every window it lies in until the end of that window has passed. As all rows of a key in a window are
partners, a head with rows of one side only is the proof that they had none: no row needs a flag.

A row is late for a window that ends at or before the watermark, as in Structured Streaming; it is late altogether if
all its windows have ended, or if its event time is null.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.entries import split_entry
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic
from headwater.operators.chain import unite
from headwater.operators.columns.entry_names import EntryNames, long_among
from headwater.operators.columns.long_keys import forget_long, key_of_entry
from headwater.operators.columns.segments import Ints, distinct_numbers, in_order_of, places, starts_of
from headwater.operators.joins.head_cache import HEADS_MAX, Codes, FoundHeads, KnownHeads, StoredHeads, Wanted
from headwater.operators.joins.join_chunks import chunk_counts, chunk_names, put_aside
from headwater.operators.joins.join_layouts import JoinLayout, conformed
from headwater.operators.joins.join_state import Heads, JoinState
from headwater.operators.joins.joining import LEFT, RIGHT, WINDOW, Schemas, StreamJoin, lacks_key
from headwater.operators.state import OperatorState
from headwater.operators.windows.lateness import event_times
from headwater.operators.windows.window_specs import TimeWindow

HEADS: Final = 1
_WINDOWS_MAX: Final = 64  # side by side; of more than these, those are looked for that have rows

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class WindowJoin(StreamJoin):
    """Pairs rows with equal keys that lie in the same window; in sliding windows, once for every window they share."""

    kind: ClassVar[str] = "window_join"
    window: TimeWindow

    def open(self) -> TimedLogic:
        """Return the logic."""
        return WindowJoinLogic(self)

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Rows are kept by the window they lie in."""
        return {**super().state_settings, "window": self.window}

    @property
    def hold_us(self) -> int:
        """A row may wait for as long as its window lasts."""
        return self.window.size_us

    def leading_fields(self, schemas: Schemas) -> list[pa.Field]:
        """The window comes first, in the time zone of the left side."""
        return [pa.field(WINDOW, pa.struct([("start", self._instant(schemas)), ("end", self._instant(schemas))]))]

    def _instant(self, schemas: Schemas) -> pa.DataType:
        kinds = [schema.field(self.time_of(side)).type for side, schema in enumerate(schemas) if schema is not None]
        return pa.timestamp("us", getattr(kinds[0], "tz", None))


class _Placed(NamedTuple):
    """Rows in windows: a row once for every window it lies in and that is open, in order."""

    rows: Ints
    starts: Ints

    def where(self, chosen: Mask) -> "_Placed":
        return _Placed(self.rows[chosen], self.starts[chosen])


class _Waiters(NamedTuple):
    """The rows of one side that wait in some heads, in order of heads, and how many each head has."""

    counts: Ints
    heads: Heads
    source: int
    inline: Ints  # the places of those that lie in the heads
    rows: pa.RecordBatch | None  # all of them, if some were put aside

    def take(self, which: Ints) -> pa.RecordBatch:
        if self.rows is None:
            return self.heads.unpacked(self.source, self.inline[which])
        return self.rows.take(pa.array(which))


def _heads_of(starts: Ints, slide_us: int, codes: Codes, keys: int) -> tuple[Wanted, Codes]:
    """Return the heads of rows, by the beginning of the window and the code of the key, and for each row its own."""
    windows, window_of = _windows_of(starts, slide_us)
    found, of_row = distinct_numbers(window_of * keys + codes, len(windows) * keys)
    return Wanted(windows, *np.divmod(found, keys)), of_row


def _windows_of(starts: Ints, slide_us: int) -> tuple[list[int], Ints]:
    """Return windows in order, with all that begin at these instants, and for each instant the place of its own."""
    first, last = int(starts.min()), int(starts.max())
    count = (last - first) // slide_us + 1
    if count == 1:
        return [first], np.zeros(len(starts), np.int64)
    if count > _WINDOWS_MAX:  # perhaps far apart, further than a number reaches
        found, of_start = np.unique(starts, return_inverse=True)
        return found.tolist(), of_start
    return [first + number * slide_us for number in range(count)], (starts - first) // slide_us


class WindowJoinLogic:
    """Runs a window join."""

    def __init__(self, config: WindowJoin) -> None:
        """Keep the configuration."""
        self._config = config
        self._state = JoinState(config)
        self._names = (EntryNames(HEADS), EntryNames(HEADS))
        self._ended: int | None = None  # the number of the last window that was let go

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Pair the rows with those that wait, then let them wait themselves."""
        config, state = self._config, moment.state
        placed = self._placed(*event_times(batch, config.time_of(source)), moment.watermark_us)
        late = np.ones(batch.num_rows, np.bool_)
        late[placed.rows] = False
        ports: list[pa.RecordBatch | None] = [None, None, None]
        if late.any():
            ports[1 + source] = batch.filter(pa.array(late))
        layout = self._state.layouts.taking(state, source, batch.schema)
        lonely = lacks_key(batch, config.key_of(source))
        made = []
        if lonely is not None:
            alone = placed.where(lonely[placed.rows])
            if config.is_outer(source) and len(alone.rows):
                rows = conformed(batch, layout.side(source).schema).take(pa.array(alone.rows))
                made.append(self._alone(layout, source, rows, alone.starts))
            placed = placed.where(~lonely[placed.rows])
        if len(placed.rows):
            made += self._paired(batch, source, placed, layout, state)
        ports[0] = unite(made) if made else None
        return ports

    def advance(self, moment: Moment) -> Outputs:
        """Let go of the windows that have ended, and of their rows that had no partner."""
        state, size = moment.state, self._config.window.size_us
        if moment.watermark_us < BEGINNING_OF_TIME + size:
            return (None, None, None)
        ended = moment.watermark_us == END_OF_TIME
        before_us = END_OF_TIME if ended else moment.watermark_us - size + 1
        if self._config.how == "inner" and not ended and not self._ends_more(before_us):
            return (None, None, None)
        layout = self._state.layouts.current(state)
        known = KnownHeads.taken(state, layout)
        found = self._gathered(state, layout, before_us) if known is None else known.drop(before_us)
        if known is None and self._can_know(state, len(found.names)):
            known = KnownHeads.learned(state, HEADS, before_us, found.heads.layout)
        made = self._let_go(state, found) if found.names else None
        if known is not None:
            known.leave(state)
        return (made, None, None)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

    def _can_know(self, state: OperatorState, ended: int) -> bool:
        """Whether all heads can be known by heart, if every window has as many as those that have ended."""
        window = self._config.window
        return state.remembers and ended * (2 + window.size_us // window.slide_us) <= HEADS_MAX

    def _gathered(self, state: OperatorState, layout: JoinLayout, before_us: int) -> FoundHeads:
        """Read the heads of windows that begin before an instant."""
        entries = state.gather(HEADS, BEGINNING_OF_TIME, before_us)
        names = [name for name, _ in entries]
        return FoundHeads(names, self._state.parsed(state, layout, names, [value for _, value in entries]))

    def _let_go(self, state: OperatorState, found: FoundHeads) -> pa.RecordBatch | None:
        """Remove heads, and return their rows that had no partner."""
        made = None if self._config.how == "inner" else self._unmatched(state, found)
        state.delete_many(found.names)
        if found.heads.own.any():
            for source, counts in enumerate(chunk_counts(found.heads)):
                state.delete_many(chunk_names(found.names, source, counts))
        forget_long(state, long_among(found.names), HEADS)
        return made

    def _ends_more(self, before_us: int) -> bool:
        """Whether windows that begin before this instant end now that had not when this was asked last.

        If that turn failed, rows that nobody asks for stay until the next window ends, and no longer.
        """
        window = self._config.window
        ended, self._ended = self._ended, (before_us - 1 - window.offset_us) // window.slide_us
        return self._ended != ended

    def _placed(self, times: Ints, known: Mask | None, watermark_us: int) -> _Placed:
        window = self._config.window
        size, slide = window.size_us, window.slide_us
        open_after = max(watermark_us - size, BEGINNING_OF_TIME)  # a window is open if it starts after this
        known = self._in_reach(times, known)
        last = times - (times - window.offset_us) % slide
        if size == slide:
            is_open = last > open_after
            rows = np.flatnonzero(is_open if known is None else is_open & known)
            return _Placed(rows, last[rows])
        earlier = np.arange(-(-size // slide) - 1, -1, -1) * slide
        starts = last[:, None] - earlier
        inside = (starts > times[:, None] - size) & (starts > open_after)
        if known is not None:
            inside &= known[:, None]
        return _Placed(np.nonzero(inside)[0], starts[inside])

    def _in_reach(self, times: Ints, known: Mask | None) -> Mask | None:
        """Return which times are known and so far from the ends of time that their windows can be told; None: all."""
        margin = 2 * self._config.window.size_us
        first, last = BEGINNING_OF_TIME + margin, END_OF_TIME - margin
        if known is None and len(times) and times.min() >= first and times.max() <= last:
            return None
        in_reach = (times >= first) & (times <= last)
        return in_reach if known is None else in_reach & known

    def _paired(
        self, batch: pa.RecordBatch, source: int, placed: _Placed, layout: JoinLayout, state: OperatorState
    ) -> list[pa.RecordBatch]:
        known: KnownHeads | StoredHeads | None = KnownHeads.taken(state, layout)
        if known is None:
            known = StoredHeads(self._state, layout, self._names[source])
        codes, keys = known.codes(batch, self._config.key_of(source), source)
        wanted, of_row = _heads_of(placed.starts, self._config.window.slide_us, codes[placed.rows], keys)
        found = known.find(state, wanted)
        layout = found.heads.layout
        batch = conformed(batch, layout.side(source).schema)
        waiters = self._waiters(state, found.heads, 1 - source, found.names)
        grown = put_aside(state, source, found.names, self._grown(found, source, batch, placed.rows, of_row))
        state.put_many(found.names, grown.values)
        for key in known.long_keys(wanted, found):
            state.remember_long(key)
        known.keep(state, found, grown)
        matches = waiters.counts[of_row]
        if not matches.any():
            return []
        own = batch.take(pa.array(np.repeat(placed.rows, matches)))
        other = waiters.take(places(starts_of(waiters.counts)[of_row], matches))
        windows = self._windows(layout, np.repeat(placed.starts, matches))
        return [layout.columns.joined([windows], (own, other) if source == LEFT else (other, own))]

    def _grown(self, found: FoundHeads, source: int, batch: pa.RecordBatch, rows: Ints, of_row: Codes) -> Heads:
        """Return heads with rows added, each to its own."""
        heads, count = found.heads, len(found.names)
        packed = heads.layout.packings[source].pack_some(batch, rows[in_order_of(of_row, count)])
        packed.records["side"] = source
        return heads.grown(packed, np.bincount(of_row, minlength=count))

    def _waiters(
        self, state: OperatorState, heads: Heads, source: int, names: Sequence[bytes], wanted: Mask | None = None
    ) -> _Waiters:
        """Return the rows of one side that wait in all heads, or in some."""
        inline = heads.side(source)
        chunks = chunk_counts(heads)[source]
        if wanted is not None:
            inline, chunks = inline[wanted[heads.head_of[inline]]], np.where(wanted, chunks, 0)
        of_row = heads.head_of[inline]
        rows = None
        if chunks.any():
            of_chunk = np.repeat(np.arange(len(names)), chunks)
            values = state.read_many(chunk_names(names, source, chunks))
            aside = self._state.parsed(state, heads.layout, [names[place] for place in of_chunk.tolist()], values)
            of_row = np.concatenate((of_chunk[aside.head_of[aside.rows()]], of_row))
            order = np.argsort(of_row, kind="stable")
            both = [aside.unpacked(source, aside.rows()), heads.unpacked(source, inline)]
            rows = pa.concat_batches(both).take(pa.array(order))
        return _Waiters(np.bincount(of_row, minlength=len(names)), heads, source, inline, rows)

    def _unmatched(self, state: OperatorState, found: FoundHeads) -> pa.RecordBatch | None:
        """Return the rows of the outer sides in windows where the other side has none, in order."""
        names, values = zip(*sorted(zip(found.names, found.heads.values, strict=True)), strict=True)
        heads = Heads(found.heads.layout, values)
        starts = np.array([split_entry(name)[0] for name in names])
        sides = heads.layout.sides(heads.records)
        there = [
            (np.bincount(heads.head_of[sides == source], minlength=len(names)) > 0) | (chunk_counts(heads)[source] > 0)
            for source in (LEFT, RIGHT)
        ]
        keys = [key_of_entry(state, name) for name in names]
        made, of_head = [], []
        for source in (LEFT, RIGHT):
            wanted = there[source] & ~there[1 - source]
            if self._config.is_outer(source) and wanted.any():
                waiters = self._waiters(state, heads, source, names, wanted)
                counts = waiters.counts
                rows = heads.layout.side(source).with_keys(waiters.take(np.arange(counts.sum())), keys, counts)
                made.append(self._alone(heads.layout, source, rows, np.repeat(starts, counts)))
                of_head.append(np.repeat(np.arange(len(names)), counts))
        if not made:
            return None
        return unite(made).take(pa.array(np.argsort(np.concatenate(of_head), kind="stable")))

    def _alone(self, layout: JoinLayout, source: int, rows: pa.RecordBatch, starts: Ints) -> pa.RecordBatch:
        """Return rows without partners, each in a window that begins there."""
        return layout.columns.joined([self._windows(layout, starts)], (rows, None) if source == LEFT else (None, rows))

    def _windows(self, layout: JoinLayout, starts: Ints) -> pa.Array:
        kind = layout.columns.schema.field(0).type
        bounds = (starts, starts + self._config.window.size_us)
        instants = [
            pa.Array.from_buffers(field.type, len(starts), [None, pa.py_buffer(instant)], 0)
            for field, instant in zip(kind, bounds, strict=True)
        ]
        return pa.Array.from_buffers(kind, len(starts), [None], 0, children=instants)
