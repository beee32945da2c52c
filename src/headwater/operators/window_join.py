"""The join of rows that lie in the same window.

A row waits in every window it lies in until the end of that window has passed. As all rows of a key in a window are
partners, a head with rows of one side only is the proof that they had none: no row needs a flag.

A row is late for a window that ends at or before the watermark, as in Structured Streaming; it is late altogether if
all its windows have ended, or if its event time is null.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.entries import split_entry
from headwater.model.keys import keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic
from headwater.operators.chain import unite
from headwater.operators.entry_names import EntryNames, long_among
from headwater.operators.join_chunks import HEAD_BYTES_MAX, chunk_counts, chunk_names, put_aside
from headwater.operators.join_layouts import Layout, conformed
from headwater.operators.join_state import Heads, JoinState
from headwater.operators.joining import LEFT, RIGHT, WINDOW, Picked, Schemas, StreamJoin, lacks_key
from headwater.operators.known_heads import HEADS_MAX, KnownHeads, Span
from headwater.operators.lateness import event_times
from headwater.operators.long_keys import forget_long, key_of_entry, remember_long
from headwater.operators.ragged import Ints, distinct_numbers, in_order_of, places, starts_of
from headwater.operators.state import OperatorState
from headwater.operators.window_specs import TimeWindow

HEADS: Final = 1

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


class _Groups(NamedTuple):
    """The heads that a batch touches, and for every placed row the one it belongs to."""

    names: list[bytes]
    spans: list[Span]
    keys: list[Any]
    key_of: list[int]  # for every head, the place of its key
    of_row: npt.NDArray[np.signedinteger[Any]]


def _windows_of(starts: Ints, slide_us: int) -> tuple[list[int], Ints]:
    """Return the windows that begin at these instants, in order, and for each instant the place of its window."""
    first, last = int(starts.min()), int(starts.max())
    count = (last - first) // slide_us + 1
    if count == 1:
        return [first], np.zeros(len(starts), np.int64)
    if count > len(starts):  # far apart, perhaps further than a number reaches
        found, of_start = np.unique(starts, return_inverse=True)
        return found.tolist(), of_start
    found, of_start = distinct_numbers((starts - first) // slide_us, count)
    return (found * slide_us + first).tolist(), of_start


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
                made.append(self._alone(layout, source, conformed(batch, layout.side(source).schema), alone))
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
        known = KnownHeads.taken(state)
        found = state.gather(HEADS, BEGINNING_OF_TIME, before_us) if known is None else known.drop(before_us)
        if known is None and self._can_know(state, len(found)):
            known = KnownHeads.learned(state, HEADS, before_us)
        made = self._let_go(state, found) if found else None
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

    def _let_go(self, state: OperatorState, found: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch | None:
        """Remove heads, and return their rows that had no partner."""
        names = [name for name, _ in found]
        heads = Heads(self._state.layouts.current(state), [value for _, value in found])
        made = None
        if self._config.how != "inner":
            heads = self._state.parsed(state, heads.layout, names, heads.values)
            made = self._unmatched(state, names, heads, np.array([split_entry(name)[0] for name in names]))
        state.delete_many(names)
        if heads.own.any():
            for source, counts in enumerate(chunk_counts(heads)):
                state.delete_many(chunk_names(names, source, counts))
        forget_long(state, long_among(names), HEADS)
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
        in_reach = (times >= BEGINNING_OF_TIME + 2 * size) & (times <= END_OF_TIME - 2 * size)
        known = in_reach if known is None else known & in_reach
        last = times - (times % slide - window.offset_us) % slide
        if size == slide:
            rows = np.flatnonzero(known & (last > open_after))
            return _Placed(rows, last[rows])
        earlier = np.arange(-(-size // slide) - 1, -1, -1) * slide
        starts = last[:, None] - earlier
        inside = (starts > times[:, None] - size) & (starts > open_after) & known[:, None]
        return _Placed(np.nonzero(inside)[0], starts[inside])

    def _paired(
        self, batch: pa.RecordBatch, source: int, placed: _Placed, layout: Layout, state: OperatorState
    ) -> list[pa.RecordBatch]:
        groups = self._groups(batch, source, placed)
        known = KnownHeads.taken(state)
        values = state.read_many(groups.names) if known is None else known.read(groups.spans, groups.names)
        heads = self._state.parsed(state, layout, groups.names, values)
        layout = heads.layout
        batch = conformed(batch, layout.side(source).schema)
        there, counts = self._waiting_rows(state, heads, 1 - source, groups.names)
        kept = self._keep(batch, source, placed, groups, heads, state)
        if known is not None:
            known.put(groups.spans, groups.names, kept)
            known.leave(state)
        if there is None:
            return []
        matches = counts[groups.of_row]
        own = Picked(batch, np.repeat(placed.rows, matches))
        found = Picked(there, places(starts_of(counts)[groups.of_row], matches))
        windows = self._windows(layout, np.repeat(placed.starts, matches))
        return [layout.columns.joined([windows], (own, found) if source == LEFT else (found, own))]

    def _groups(self, batch: pa.RecordBatch, source: int, placed: _Placed) -> _Groups:
        """Find the windows and keys that rows lie in."""
        keyed = keyed_rows(batch, self._config.key_of(source))
        keys = len(keyed.keys)
        starts, window_of = _windows_of(placed.starts, self._config.window.slide_us)
        found, of_row = distinct_numbers(window_of * keys + keyed.codes[placed.rows], len(starts) * keys)
        ends = np.searchsorted(found, np.arange(len(starts) + 1) * keys).tolist()
        places = (found % keys).tolist()
        spans = list(zip(starts, ends, ends[1:], strict=False))
        names = self._names[source].in_windows(keyed.keys, places, spans)
        return _Groups(names, spans, keyed.keys, places, of_row)

    def _keep(
        self,
        batch: pa.RecordBatch,
        source: int,
        placed: _Placed,
        groups: _Groups,
        heads: Heads,
        state: OperatorState,
    ) -> list[bytes]:
        """Add the rows to their heads, put aside what is too much for a head, and return the heads."""
        rows = placed.rows[in_order_of(groups.of_row, len(groups.names))]
        packed = heads.layout.packings[source].pack_some(batch, rows)
        packed.records["side"] = source
        values = heads.grown(packed, np.bincount(groups.of_row, minlength=len(groups.names)))
        state.put_many(groups.names, values)
        if max(map(len, values)) > HEAD_BYTES_MAX:
            full = [place for place, value in enumerate(values) if len(value) > HEAD_BYTES_MAX]
            grown = Heads(heads.layout, [values[place] for place in full])
            put_aside(state, source, [groups.names[place] for place in full], grown)
            for place in full:
                values[place] = state.read(groups.names[place]) or values[place]
        if long_among(groups.names):
            remember_long(state, groups.names, [groups.keys[place] for place in groups.key_of])
        return values

    def _waiting_rows(
        self, state: OperatorState, heads: Heads, source: int, names: Sequence[bytes], wanted: Mask | None = None
    ) -> tuple[pa.RecordBatch | None, Ints]:
        """Return the rows of one side, of all heads or of some, in order of heads, and how many each head has."""
        inline = heads.side(source)
        chunks = chunk_counts(heads)[source]
        if wanted is not None:
            inline, chunks = inline[wanted[heads.head_of[inline]]], np.where(wanted, chunks, 0)
        of_row = heads.head_of[inline]
        rows = heads.unpacked(source, inline) if len(inline) else None
        if chunks.any():
            of_chunk = np.repeat(np.arange(len(names)), chunks)
            values = state.read_many(chunk_names(names, source, chunks))
            aside = self._state.parsed(state, heads.layout, [names[place] for place in of_chunk.tolist()], values)
            earlier = aside.unpacked(source, aside.rows())
            of_row = np.concatenate((of_chunk[aside.head_of[aside.rows()]], of_row))
            order = np.argsort(of_row, kind="stable")
            rows = (earlier if rows is None else pa.concat_batches([earlier, rows])).take(pa.array(order))
        return rows, np.bincount(of_row, minlength=len(names))

    def _unmatched(
        self, state: OperatorState, names: Sequence[bytes], heads: Heads, starts: Ints
    ) -> pa.RecordBatch | None:
        """Return the rows of the outer sides in windows where the other side has none."""
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
                rows, counts = self._waiting_rows(state, heads, source, names, wanted)
                assert rows is not None
                rows = heads.layout.side(source).with_keys(rows, keys, counts)
                placed = _Placed(np.arange(rows.num_rows), np.repeat(starts, counts))
                made.append(self._alone(heads.layout, source, rows, placed))
                of_head.append(np.repeat(np.arange(len(names)), counts))
        if not made:
            return None
        return unite(made).take(pa.array(np.argsort(np.concatenate(of_head), kind="stable")))

    def _alone(self, layout: Layout, source: int, rows: pa.RecordBatch, placed: _Placed) -> pa.RecordBatch:
        """Return rows without partners."""
        picked = Picked(rows, placed.rows)
        windows = self._windows(layout, placed.starts)
        return layout.columns.joined([windows], (picked, None) if source == LEFT else (None, picked))

    def _windows(self, layout: Layout, starts: Ints) -> pa.Array:
        kind = layout.columns.schema.field(0).type
        ends = starts + self._config.window.size_us
        return pa.StructArray.from_arrays(
            [pa.array(starts).view(kind[0].type), pa.array(ends).view(kind[1].type)], fields=list(kind)
        )
