"""Rows of a window that are put aside: what one key gathers must not be written anew with every batch that brings it.

A page of the store has 4 KiB and is written as a whole, so a head may grow up to that at no cost. Beyond it, the rows
of the side that has more than its half become a chunk, an entry of its own that is never changed and only read from
then on. A head's own number is how many chunks it has, of the left side and of the right.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from headwater.operators.columns.segments import Ints
from headwater.operators.joins.join_state import Heads, WaitingRows, encoded_heads
from headwater.operators.joins.joining import LEFT, RIGHT
from headwater.operators.state import OperatorState

CHUNKS: Final = 2  # the space they lie in
HEAD_BYTES_MAX: Final = 4_096

_HALF: Final = 32  # bits of a number


def chunk_counts(heads: Heads) -> tuple[Ints, Ints]:
    """Return how many chunks heads have, of the left side and of the right."""
    return heads.own & ((1 << _HALF) - 1), heads.own >> _HALF


def chunk_names(names: Sequence[bytes], source: int, counts: Ints) -> list[bytes]:
    """Return the names of all chunks of one side of these heads, in order."""
    return [
        _chunk_name(names[place], source, number)
        for place in np.flatnonzero(counts).tolist()
        for number in range(counts[place])
    ]


def _chunk_name(name: bytes, source: int, number: int) -> bytes:
    """Return the name of a chunk: the head's own, in another space, with side and number behind."""
    return bytes((CHUNKS,)) + name[1:] + bytes((source,)) + number.to_bytes(4, "big")


def put_aside(state: OperatorState, source: int, names: Sequence[bytes], heads: Heads) -> Heads:
    """Write as chunks what is too much for heads to which rows of one side were added, and return what is left of them.

    The rows of that side go, where they are more than their half.
    """
    full = np.flatnonzero(heads.sizes > HEAD_BYTES_MAX).tolist()
    if not full:
        return heads
    values, sizes, own = list(heads.values), heads.sizes.copy(), heads.own.copy()
    too_long = Heads(heads.layout, [values[place] for place in full], sizes[full], own[full])
    counts = chunk_counts(too_long)
    aside, rest = _of_side(too_long, source), _of_side(too_long, 1 - source)
    moved = np.flatnonzero(aside.sizes > HEAD_BYTES_MAX // 2)
    chunks = encoded_heads(heads.layout, [aside], np.zeros(len(full), np.int64))
    for at in moved.tolist():
        state.put(_chunk_name(names[full[at]], source, int(counts[source][at])), chunks[at])
    counts[source][moved] += 1
    left = Heads(heads.layout, encoded_heads(heads.layout, [rest], counts[LEFT] | counts[RIGHT] << _HALF))
    for at in moved.tolist():
        values[full[at]], sizes[full[at]], own[full[at]] = left.values[at], left.sizes[at], left.own[at]
    return Heads(heads.layout, values, sizes, own)


def _of_side(heads: Heads, source: int) -> WaitingRows:
    rows = heads.side(source)
    return WaitingRows.of(heads.packed(rows), np.bincount(heads.head_of[rows], minlength=len(heads.counts)))
