"""The join of rows that are not too far from one another in time.

A left row waits as long as a right row may come that is at most `upper` after it; a right row, as long as a left row
may come that is at most `-lower` after it. All rows of a key wait under one name, and a key that has rows stands in a
diary once, at the instant when the first of them is due: what is due is found without looking at any other key.

A row behind the watermark is late, however near its partners are; Structured Streaming drops such rows too, and those
exactly at the watermark. All others meet every partner there is: what is given up at a watermark is out of the reach
of every row that is not behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.entries import space_prefix
from headwater.model.errors import FlowError
from headwater.model.keys import keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic
from headwater.operators.chain import unite
from headwater.operators.columns.entry_names import EntryNames
from headwater.operators.columns.long_keys import SUFFIX_AT, forget_long, key_of_entry, remember_long
from headwater.operators.columns.segments import Ints, in_order_of, places, starts_of
from headwater.operators.joins.interval_search import later, search
from headwater.operators.joins.join_layouts import JoinLayout, conformed
from headwater.operators.joins.join_state import Heads, JoinState, WaitingRows, encoded_heads
from headwater.operators.joins.joining import LEFT, RIGHT, StreamJoin, lacks_key
from headwater.operators.state import OperatorState
from headwater.operators.windows.lateness import event_times

HEADS: Final = 1
DIARY: Final = 2

USEFUL_MIN: Final = 0.75  # of the rows that were read: with fewer, it is worth to leave the others out

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class IntervalJoin(StreamJoin):
    """Pairs rows with equal keys where `left.time + lower <= right.time <= left.time + upper`."""

    kind: ClassVar[str] = "interval_join"
    lower_us: int
    upper_us: int

    def __post_init__(self) -> None:
        """Refuse an interval that no two instants can have."""
        super().__post_init__()
        if self.lower_us > self.upper_us:
            raise FlowError("an interval join needs a lower bound that is not above its upper bound")

    def open(self) -> TimedLogic:
        """Return the logic."""
        return IntervalJoinLogic(self)

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Rows are gone once the interval is behind them."""
        return {**super().state_settings, "lower_us": self.lower_us, "upper_us": self.upper_us}

    @property
    def hold_us(self) -> int:
        """A row may wait for as long as its interval reaches."""
        return max(0, self.upper_us, -self.lower_us)

    def reach_us(self, source: int) -> int:
        """How far behind a row of this side the watermark may be for a partner to come."""
        return self.upper_us if source == LEFT else -self.lower_us

    def partners_us(self, source: int) -> tuple[int, int]:
        """How far from a row of this side its partners are, at least and at most."""
        return (self.lower_us, self.upper_us) if source == LEFT else (-self.upper_us, -self.lower_us)


class _Arrived(NamedTuple):
    """Rows that are not late and have a key: their places in the batch, their times, and the heads they belong to."""

    rows: Ints
    times: Ints
    names: list[bytes]
    keys: list[Any]
    head_of: npt.NDArray[np.signedinteger[Any]]


class IntervalJoinLogic:
    """Runs an interval join."""

    def __init__(self, config: IntervalJoin) -> None:
        """Keep the configuration."""
        self._config = config
        self._state = JoinState(config)
        self._names = (EntryNames(HEADS), EntryNames(HEADS))

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Pair the rows with those that wait, then let them wait themselves."""
        config, state = self._config, moment.state
        times, known = event_times(batch, config.time_of(source))
        late = times < moment.watermark_us if known is None else (times < moment.watermark_us) | ~known
        ports: list[pa.RecordBatch | None] = [None, None, None]
        if late.any():
            ports[1 + source] = batch.filter(pa.array(late))
        layout = self._state.layouts.taking(state, source, batch.schema)
        lonely = lacks_key(batch, config.key_of(source))
        made = []
        if lonely is not None:
            alone = np.flatnonzero(lonely & ~late)
            if config.is_outer(source) and len(alone):
                made.append(_alone(layout, source, conformed(batch, layout.side(source).schema), alone))
            late |= lonely
        if not late.all():
            arrived = self._arrived(batch, source, times, late)
            made += self._paired(batch, source, arrived, layout, moment)
        ports[0] = unite(made) if made else None
        return ports

    def advance(self, moment: Moment) -> Outputs:
        """Give up the rows that no partner can come for any more."""
        state = moment.state
        due = [one.entry for one in state.held(DIARY, BEGINNING_OF_TIME, min(moment.watermark_us + 1, END_OF_TIME))]
        if not due:
            return (None, None, None)
        state.delete_many(due)
        names = [space_prefix(HEADS, 0) + entry[SUFFIX_AT:] for entry in due]
        heads = self._state.heads(state, self._state.layouts.current(state), names)
        rows = heads.rows()
        due_us = self._due_us(heads, rows)
        gone = due_us < moment.watermark_us
        alone = self._unmatched(heads, rows)
        made = self._given_up(state, names, heads, rows[gone & alone], due_us[gone & alone])
        self._keep_on(state, names, heads, rows[~gone], due_us[~gone], alone[~gone])
        return (made, None, None)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

    def _arrived(self, batch: pa.RecordBatch, source: int, times: Ints, left_out: Mask) -> _Arrived:
        keyed = keyed_rows(batch, self._config.key_of(source))
        names = self._names[source]
        if not left_out.any():
            return _Arrived(np.arange(len(times)), times, names.of(keyed.keys), keyed.keys, keyed.codes)
        rows = np.flatnonzero(~left_out)
        found, head_of = np.unique(keyed.codes[rows], return_inverse=True)
        keys = [keyed.keys[code] for code in found.tolist()]
        return _Arrived(rows, times[rows], names.of(keys), keys, head_of)

    def _paired(
        self, batch: pa.RecordBatch, source: int, arrived: _Arrived, layout: JoinLayout, moment: Moment
    ) -> list[pa.RecordBatch]:
        heads = self._state.heads(moment.state, layout, arrived.names)
        layout = heads.layout
        batch = conformed(batch, layout.side(source).schema)
        waiting, starts, counts = self._partners(heads, source, arrived)
        found = places(starts, counts)
        made = []
        if len(found):
            own = batch.take(pa.array(np.repeat(arrived.rows, counts)))
            other = heads.unpacked(1 - source, waiting[found])
            made.append(layout.columns.joined([], (own, other) if source == LEFT else (other, own)))
        is_changed = False
        if self._config.is_outer(1 - source) and len(found):
            flags = layout.flags(heads.records)
            is_changed = not flags[waiting[found]].all()
            flags[waiting[found]] = 1
        self._keep(batch, source, arrived, heads, counts > 0, is_changed, moment)
        return made

    def _partners(self, heads: Heads, source: int, arrived: _Arrived) -> tuple[Ints, Ints, Ints]:
        """Return what waits on the other side, and for each row that arrived a stretch of it: start and length."""
        waiting = heads.side(1 - source)
        if not len(waiting):
            return waiting, np.zeros(len(arrived.rows), np.int64), np.zeros(len(arrived.rows), np.int64)
        lowest, highest = (later(arrived.times, by_us) for by_us in self._config.partners_us(source))
        found = search(arrived.head_of, lowest, highest, heads.head_of[waiting], heads.times_us(waiting))
        return waiting if found.order is None else waiting[found.order], found.starts, found.counts

    def _keep(
        self,
        batch: pa.RecordBatch,
        source: int,
        arrived: _Arrived,
        heads: Heads,
        matched: Mask,
        is_changed: bool,
        moment: Moment,
    ) -> None:
        """Add the rows to their heads without what is of no use any more, and note in the diary when they are due."""
        state, packing = moment.state, heads.layout.packings[source]
        order = in_order_of(arrived.head_of, len(arrived.names))
        packed = packing.pack(batch.select(packing.schema.names).take(pa.array(arrived.rows[order])))
        packed.records["side"], packed.records["flag"] = source, matched[order]
        new = WaitingRows.of(packed, np.bincount(arrived.head_of, minlength=len(arrived.names)))
        due_us = later(arrived.times, self._config.reach_us(source))[order]
        is_alone = ~matched[order] if self._config.is_outer(source) else np.zeros(len(order), np.bool_)
        diary = self._noted(state, arrived, heads, new.counts, due_us, is_alone)
        rows = heads.rows()
        useful = (self._due_us(heads, rows) >= moment.watermark_us) | self._unmatched(heads, rows)
        if is_changed or np.count_nonzero(useful) <= len(rows) * USEFUL_MIN:
            rows = rows[useful]
            old = WaitingRows.of(heads.packed(rows), np.bincount(heads.head_of[rows], minlength=len(arrived.names)))
            values = encoded_heads(heads.layout, [old, new], diary)
        else:
            values = heads.extended(new, diary)
        state.put_many(arrived.names, values)

    def _noted(
        self, state: OperatorState, arrived: _Arrived, heads: Heads, counts: Ints, due_us: Ints, is_alone: Mask
    ) -> Ints:
        """Put the keys of new rows into the diary where they are not in it early enough; return where they all are."""
        is_new = heads.counts == 0
        if self._config.how == "inner" and not is_new.any():
            return heads.own
        wanted = self._first_due(due_us, is_alone, counts)
        moved = np.flatnonzero(is_new | (is_alone.any() & (wanted < heads.own)))
        diary = heads.own.copy()
        diary[moved] = wanted[moved]
        suffixes = [arrived.names[place][SUFFIX_AT:] for place in moved.tolist()]
        for place, suffix, time_us in zip(moved.tolist(), suffixes, diary[moved].tolist(), strict=True):
            if not is_new[place]:
                state.delete(space_prefix(DIARY, int(heads.own[place])) + suffix)
            state.put(space_prefix(DIARY, time_us) + suffix, b"")
        lacking = np.flatnonzero(is_new).tolist()
        remember_long(state, [arrived.names[place] for place in lacking], [arrived.keys[place] for place in lacking])
        return diary

    def _due_us(self, heads: Heads, rows: Ints) -> Ints:
        """Return how far the watermark may come while a partner of each row may still come."""
        reaches = [self._config.reach_us(source) for source in (LEFT, RIGHT)]
        times = heads.times_us(rows)
        if reaches[LEFT] == reaches[RIGHT]:
            return later(times, reaches[LEFT])
        is_left = heads.layout.sides(heads.records)[rows] == LEFT
        return np.where(is_left, later(times, reaches[LEFT]), later(times, reaches[RIGHT]))

    def _unmatched(self, heads: Heads, rows: Ints) -> Mask:
        """Return which rows come out if they stay alone, and are alone so far."""
        if self._config.how == "inner":
            return np.zeros(len(rows), np.bool_)
        sides, flags = heads.layout.sides(heads.records)[rows], heads.layout.flags(heads.records)[rows]
        is_outer: Mask = np.array([self._config.is_outer(LEFT), self._config.is_outer(RIGHT)])[sides]
        alone: Mask = is_outer & (flags == 0)
        return alone

    def _given_up(
        self, state: OperatorState, names: list[bytes], heads: Heads, rows: Ints, due_us: Ints
    ) -> pa.RecordBatch | None:
        """Return rows that had no partner, in the order in which they became due."""
        if not len(rows):
            return None
        keys = [key_of_entry(state, name) for name in names]
        sides = heads.layout.sides(heads.records)[rows]
        made, of_row = [], []
        for source in (LEFT, RIGHT):
            which = np.flatnonzero(sides == source)
            if len(which):
                counts = np.bincount(heads.head_of[rows[which]], minlength=len(names))
                alone = heads.layout.side(source).with_keys(heads.unpacked(source, rows[which]), keys, counts)
                made.append(_alone(heads.layout, source, alone, np.arange(len(which))))
                of_row.append(which)
        order = np.lexsort((np.concatenate(of_row), due_us[np.concatenate(of_row)]))
        return unite(made).take(pa.array(order))

    def _keep_on(
        self, state: OperatorState, names: list[bytes], heads: Heads, rows: Ints, due_us: Ints, is_alone: Mask
    ) -> None:
        """Write the heads with the rows that go on waiting; those without any are deleted."""
        counts = np.bincount(heads.head_of[rows], minlength=len(names))
        gone = np.flatnonzero(counts == 0).tolist()
        state.delete_many([names[place] for place in gone])
        forget_long(state, [names[place] for place in gone], HEADS)
        if not len(rows):
            return
        diary = self._first_due(due_us, is_alone, counts)
        kept = np.flatnonzero(counts).tolist()
        for place in kept:
            state.put(space_prefix(DIARY, int(diary[place])) + names[place][SUFFIX_AT:], b"")
        if self._config.how != "inner":  # there, rows are left out when the head is next written
            values = encoded_heads(heads.layout, [WaitingRows.of(heads.packed(rows), counts)], diary)
            state.put_many([names[place] for place in kept], [values[place] for place in kept])

    def _first_due(self, due_us: Ints, is_alone: Mask, counts: Ints) -> Ints:
        """Return for each head when to look at it again: as soon as a row must come out alone, else some time later.

        `counts` says how many rows belong to each head, in order; a head without rows is due at the end of time.
        """
        first = np.full(len(counts), END_OF_TIME)
        there = np.flatnonzero(counts)
        starts = starts_of(counts)[there]
        alone = np.minimum.reduceat(np.where(is_alone, due_us, END_OF_TIME - 1), starts)
        last = later(np.maximum.reduceat(due_us, starts), self._config.hold_us)
        first[there] = np.where(alone == END_OF_TIME - 1, last, alone) + 1
        return first


def _alone(layout: JoinLayout, source: int, batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    """Return rows without partners."""
    alone = batch.take(pa.array(rows))
    return layout.columns.joined([], (alone, None) if source == LEFT else (None, alone))
