"""Rows of a window that are put aside: what one key gathers must not be written anew with every batch that brings it.

A page of the store has 4 KiB and is written as a whole, so a head may grow up to that at no cost. Beyond it, the rows
of the side that has more than its half become a chunk, an entry of its own that is never changed and only read from
then on. A head's own number is how many chunks it has, of the left side and of the right.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from headwater.operators.join_state import Heads, Waiting, encoded_heads
from headwater.operators.joining import LEFT, RIGHT
from headwater.operators.ragged import Ints
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


def put_aside(state: OperatorState, source: int, names: Sequence[bytes], heads: Heads) -> None:
    """Write the rows of one side as chunks, for the heads in which it has more than its half."""
    counts = chunk_counts(heads)
    aside, rest = _of_side(heads, source), _of_side(heads, 1 - source)
    moved = np.flatnonzero(aside.sizes > HEAD_BYTES_MAX // 2).tolist()
    chunks = encoded_heads(heads.layout, [aside], np.zeros(len(names), np.int64))
    for place in moved:
        state.put(_chunk_name(names[place], source, int(counts[source][place])), chunks[place])
        counts[source][place] += 1
    left = encoded_heads(heads.layout, [rest], counts[LEFT] | counts[RIGHT] << _HALF)
    state.put_many([names[place] for place in moved], [left[place] for place in moved])


def _of_side(heads: Heads, source: int) -> Waiting:
    rows = heads.side(source)
    return Waiting.of(heads.packed(rows), np.bincount(heads.head_of[rows], minlength=len(heads.counts)))
