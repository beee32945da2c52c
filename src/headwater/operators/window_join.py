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

from headwater.model.keys import keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic
from headwater.operators.chain import unite
from headwater.operators.entry_names import EntryNames
from headwater.operators.join_chunks import HEAD_BYTES_MAX, chunk_counts, chunk_names, put_aside
from headwater.operators.join_layouts import Layout, conformed
from headwater.operators.join_state import Heads, JoinState, Waiting
from headwater.operators.joining import LEFT, RIGHT, WINDOW, Picked, Schemas, StreamJoin, lacks_key
from headwater.operators.lateness import event_times
from headwater.operators.long_keys import forget_long, key_of_entry, remember_long
from headwater.operators.ragged import Ints, in_order_of, places, starts_of
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
    keys: list[Any]
    of_row: npt.NDArray[np.signedinteger[Any]]


class WindowJoinLogic:
    """Runs a window join."""

    def __init__(self, config: WindowJoin) -> None:
        """Keep the configuration."""
        self._config = config
        self._state = JoinState(config)
        self._names = (EntryNames(HEADS), EntryNames(HEADS))

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
        found = list(state.held(HEADS, BEGINNING_OF_TIME, before_us))
        if not found:
            return (None, None, None)
        names = [one.entry for one in found]
        layout = self._state.layouts.current(state)
        heads = self._state.parsed(state, layout, names, [one.value for one in found])
        made = None
        if self._config.how != "inner":
            made = self._unmatched(state, names, heads, np.array([one.time_us for one in found]))
        state.delete_many(names)
        for source, counts in enumerate(chunk_counts(heads)):
            state.delete_many(chunk_names(names, source, counts))
        forget_long(state, names, HEADS)
        return (made, None, None)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

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
        heads = self._state.heads(state, layout, groups.names)
        layout = heads.layout
        batch = conformed(batch, layout.side(source).schema)
        there, counts = self._waiting_rows(state, heads, 1 - source, groups.names)
        self._keep(batch, source, placed, groups, heads, state)
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
        names = self._names[source]
        first = int(placed.starts[0])
        if len(placed.rows) == batch.num_rows and (placed.starts == first).all():
            return _Groups(names.of(keyed.keys, first), keyed.keys, keyed.codes)
        starts, which = np.unique(placed.starts, return_inverse=True)
        found, of_row = np.unique(which * len(keyed.keys) + keyed.codes[placed.rows], return_inverse=True)
        windows, keys = np.divmod(found, len(keyed.keys))
        touched = [keyed.keys[key] for key in keys.tolist()]
        return _Groups(names.at_times(touched, starts[windows].tolist()), touched, of_row)

    def _keep(
        self,
        batch: pa.RecordBatch,
        source: int,
        placed: _Placed,
        groups: _Groups,
        heads: Heads,
        state: OperatorState,
    ) -> None:
        """Add the rows to their heads, and put aside what is too much for a head."""
        packing = heads.layout.packings[source]
        order = in_order_of(groups.of_row, len(groups.names))
        packed = packing.pack(batch.select(packing.schema.names).take(pa.array(placed.rows[order])))
        packed.records["side"] = source
        new = Waiting.of(packed, np.bincount(groups.of_row, minlength=len(groups.names)))
        values = heads.extended(new)
        state.put_many(groups.names, values)
        full = [place for place, value in enumerate(values) if len(value) > HEAD_BYTES_MAX]
        if full:
            grown = Heads(heads.layout, [values[place] for place in full])
            put_aside(state, source, [groups.names[place] for place in full], grown)
        lacking = np.flatnonzero(heads.counts == 0).tolist()
        remember_long(state, [groups.names[place] for place in lacking], [groups.keys[place] for place in lacking])

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
