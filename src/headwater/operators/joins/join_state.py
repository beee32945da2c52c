"""The rows that wait for a partner, as they lie in the store.

A head is all that waits under one key (and in one window): the rows of both sides in order of arrival, so that a turn
reads and writes one entry for each key of its rows. It is a header, records, each with its side and a flag, and their
heap. The header says in which layout they are, how many (if there is a heap behind), and has a number for the join's
own use; it is as long as a record, so the heads of a thousand keys, put one behind the other, are one array. A head
that is touched is brought to the layout of today.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.columns.long_keys import key_of_entry
from headwater.operators.columns.packing import PackedRows, Records, heap_by_row, heap_of
from headwater.operators.columns.segments import Ints, cut, starts_of, sums_of
from headwater.operators.joins.join_layouts import HEADER, JoinLayout, Layouts, conformed, header_fields
from headwater.operators.joins.joining import LEFT, RIGHT, StreamJoin
from headwater.operators.state import OperatorState


class WaitingRows(NamedTuple):
    """Packed rows by key: how many each key has, the bytes they take, their records, and their heap."""

    counts: Ints
    sizes: Ints
    records: list[bytes]
    heaps: list[bytes] | None  # None: nothing of these rows varies in length

    @classmethod
    def of(cls, packed: PackedRows, counts: Ints) -> "WaitingRows":
        """Rows that lie one key behind the other."""
        sizes = counts * packed.records.itemsize
        records = cut(packed.records.tobytes(), sizes)
        if not packed.heap:
            return cls(counts, sizes, records, None)
        heap_sizes = sums_of(packed.heap_sizes, counts)
        return cls(counts, sizes + heap_sizes, records, cut(packed.heap, heap_sizes))


class Heads:
    """The heads of many keys, all of one layout; the head of a key without rows is a header alone."""

    def __init__(
        self, layout: JoinLayout, values: Sequence[bytes], sizes: Ints | None = None, own: Ints | None = None
    ) -> None:
        """Keep their bytes, and what is known of them: how many bytes each is, and the join's own number of each."""
        self.layout = layout
        self.values = values
        self.sizes = np.fromiter(map(len, values), np.int64, len(values)) if sizes is None else sizes
        self._own = own

    @cached_property
    def layouts(self) -> Ints:
        """The layout in which each head was written."""
        return self._headers["layout"]

    @property
    def own(self) -> Ints:
        """The join's own number of each head."""
        if self._own is None:
            self._own = self._headers["own"]
        return self._own

    @cached_property
    def counts(self) -> Ints:
        """How many rows each head has."""
        if self.layout.has_heap:
            return self._headers["rows"].astype(np.int64)
        return self.sizes // self.layout.row_bytes - 1

    @cached_property
    def _joined(self) -> bytearray:
        return bytearray().join(self.values)

    @cached_property
    def _headers(self) -> npt.NDArray[Any]:
        return header_fields(self._joined, starts_of(self.sizes))

    @cached_property
    def records(self) -> Records:
        """All records, one head behind the other, each behind its header; their flags may be changed."""
        if not self.layout.has_heap:
            return self.layout.records(self._joined)
        return self.layout.records(bytearray().join([value[:end] for value, end in self._with_ends()]))

    @cached_property
    def head_of(self) -> Ints:
        """To which head each record belongs."""
        return np.repeat(np.arange(len(self.counts)), self.counts + 1)

    def side(self, source: int) -> Ints:
        """The places of the records of one side."""
        return np.flatnonzero(self.layout.sides(self.records) == source)

    def rows(self) -> Ints:
        """The places of all records that are rows."""
        return np.flatnonzero(self.layout.sides(self.records) != HEADER)

    def times_us(self, places: Ints) -> Ints:
        """The event times of some rows."""
        return self.layout.times_us(self.records.take(places))

    def packed(self, places: Ints) -> PackedRows:
        """Some rows, packed."""
        sizes = self._heap_sizes[places] if self.layout.has_heap else np.zeros(len(places), np.int64)
        return PackedRows(self.records.take(places), self._heap_of(places), sizes)

    def unpacked(self, source: int, places: Ints) -> pa.RecordBatch:
        """Some rows of one side."""
        packing = self.layout.packings[source]
        heap = self._heap_of(places) if packing.has_heap else b""
        return packing.unpack(self.records.take(places).view(packing.record), heap)

    def extended(self, new: WaitingRows, own: Ints | None = None) -> list[bytes]:
        """Return the heads with rows added, and perhaps another number of the join's own."""
        if not self.layout.has_heap and (own is None or own is self.own or (own == self.own).all()):
            return [value + added for value, added in zip(self.values, new.records, strict=True)]
        start = self.layout.row_bytes
        records = [value[start:end] for value, end in self._with_ends()]
        heaps = self._heaps if self.layout.has_heap else None
        old = WaitingRows(self.counts, self.sizes - start, records, heaps)
        return encoded_heads(self.layout, [old, new], self.own if own is None else own)

    def grown(self, new: PackedRows, counts: Ints) -> "Heads":
        """Return the heads with rows added that lie one head behind the other, so many for each."""
        if self.layout.has_heap:
            added = WaitingRows.of(new, counts)
            return Heads(self.layout, self.extended(added), self.sizes + added.sizes, self.own)
        before = self.counts + 1
        joined = np.empty(len(self.records) + len(new.records), self.records.dtype)
        joined[np.arange(len(self.records)) + np.repeat(starts_of(counts), before)] = self.records
        joined[np.arange(len(new.records)) + np.repeat(np.cumsum(before), counts)] = new.records.view(joined.dtype)
        sizes = (before + counts) * self.layout.row_bytes
        return Heads(self.layout, cut(joined.tobytes(), sizes), sizes, self.own)

    def _with_ends(self) -> Iterator[tuple[bytes, int]]:
        """The values, each with the place where its heap begins."""
        return zip(self.values, ((self.counts + 1) * self.layout.row_bytes).tolist(), strict=True)

    @cached_property
    def _heaps(self) -> list[bytes]:
        return [value[end:] for value, end in self._with_ends()]

    @cached_property
    def _heap_sizes(self) -> Ints:
        sizes = np.zeros(len(self.records), np.int64)
        for source, packing in enumerate(self.layout.packings):
            places = self.side(source)
            sizes[places] = packing.heap_sizes(self.records.take(places).view(packing.record))
        return sizes

    def _heap_of(self, places: Ints) -> bytes:
        if not self.layout.has_heap:
            return b""
        return heap_of(heap_by_row(b"".join(self._heaps), self._heap_sizes).take(pa.array(places)))


def encoded_heads(layout: JoinLayout, parts: Sequence[WaitingRows], own: Ints) -> list[bytes]:
    """Return the bytes of many heads whose rows come from one place or several."""
    counts = np.sum([part.counts for part in parts], axis=0)
    pieces = [cut(layout.headers(counts, own), np.full(len(own), layout.row_bytes))]
    pieces += [part.records for part in parts]
    pieces += [part.heaps for part in parts if part.heaps is not None]
    return list(map(b"".join, zip(*pieces, strict=True)))


class JoinState:
    """Reads heads, whatever layout they were written in."""

    def __init__(self, config: StreamJoin) -> None:
        """Know no layout yet."""
        self.layouts = Layouts(config)

    def heads(self, state: OperatorState, layout: JoinLayout, names: Sequence[bytes]) -> Heads:
        """Return the heads of these names in this layout, or in a wider one if some of them need it."""
        return self.parsed(state, layout, names, state.read_many(names))

    def parsed(
        self, state: OperatorState, layout: JoinLayout, names: Sequence[bytes], values: Sequence[bytes | None]
    ) -> Heads:
        """Return heads that were read already; where there is none, it has no rows."""
        heads = Heads(layout, [value or layout.no_rows for value in values])
        if (heads.layouts == layout.identity).all():
            return heads
        for identity in np.unique(heads.layouts).tolist():
            layout = self.layouts.covering(state, layout, identity)
        brought = [value or layout.no_rows for value in values]
        for identity in set(heads.layouts.tolist()) - {layout.identity}:
            places = [place for place in np.flatnonzero(heads.layouts == identity).tolist() if values[place]]
            keys = [key_of_entry(state, names[place]) for place in places]
            before = Heads(self.layouts.find(state, identity), [heads.values[place] for place in places])
            for place, value in zip(places, _renewed(before, layout, keys), strict=True):
                brought[place] = value
        return Heads(layout, brought)


def _renewed(heads: Heads, layout: JoinLayout, keys: Sequence[bytes]) -> list[bytes]:
    """Return the same heads in another layout, which is wider."""
    places = [heads.side(source) for source in (LEFT, RIGHT)]
    packed = [_repacked(heads, layout, source, places[source], keys) for source in (LEFT, RIGHT)]
    order = np.argsort(np.concatenate(places))
    records = np.concatenate([layout.records(rows.records.tobytes()) for rows in packed]).take(order)
    rows = heads.records.take(heads.rows())
    layout.sides(records)[:], layout.flags(records)[:] = heads.layout.sides(rows), heads.layout.flags(rows)
    heap = pa.concat_arrays([heap_by_row(rows.heap, rows.heap_sizes) for rows in packed]).take(pa.array(order))
    sizes = np.concatenate([rows.heap_sizes for rows in packed])[order]
    return encoded_heads(layout, [WaitingRows.of(PackedRows(records, heap_of(heap), sizes), heads.counts)], heads.own)


def _repacked(heads: Heads, layout: JoinLayout, source: int, places: Ints, keys: Sequence[bytes]) -> PackedRows:
    packing = layout.packings[source]
    if not len(places):
        return packing.pack(pa.RecordBatch.from_pylist([], schema=packing.schema))
    counts = np.bincount(heads.head_of[places], minlength=len(keys))
    rows = heads.layout.side(source).with_keys(heads.unpacked(source, places), keys, counts)
    return packing.pack(conformed(rows, packing.schema))
