"""One reader for every source: a feed brings pieces of rows, a pacer says when they are sent.

A feed knows files, formats and positions, but not time; a pacer knows only time. The reader cuts a piece where the pace
or the engine requires it, and asks the piece for the position there.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from headwater.connectors.pacing import Pacer
from headwater.dataflow.connectors import Ended, Idle, Poll, Position, Rows, told_by

WAIT_US: Final = 10_000  # between two looks at a followed file


@dataclass(frozen=True, slots=True)
class Piece:
    """Decoded rows, and the position after any of them."""

    batch: pa.RecordBatch
    position_after: Callable[[int], Position]
    turn: int = 0  # how often the source has started over
    refused: int = 0  # rows before these that were stored in an earlier run
    too_large: int = 0  # lines before these that were left out, as they are longer than any row may be
    bad_before: tuple[int, ...] = ()  # for each line that was left out, the row it comes before, in order


class Waiting:
    """There may be more rows later."""


class Feed(Protocol):
    """A source of pieces."""

    def pull(self, rows_max: int) -> Piece | Waiting | None:
        """Return the next piece; None at the end."""
        ...

    def close(self) -> None:
        """Close all files."""
        ...


class PacedReader:
    """A `SourceReader` made of a feed and a pacer."""

    def __init__(self, feed: Feed, pacer: Pacer) -> None:
        """Nothing is read before the first poll."""
        self._feed, self._pacer = feed, pacer
        self._piece: Piece | None = None
        self._at = 0

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return the rows that are due, up to `rows_max`."""
        if self._piece is None:
            match self._feed.pull(rows_max):
                case None:
                    return Ended()
                case Waiting():
                    self._pacer.ran_dry(now_us)
                    return Idle(now_us + WAIT_US)
                case Piece() as piece:
                    self._piece, self._at = piece, 0
                    self._pacer.begin(piece.batch, piece.turn, now_us)
        return self._send(self._piece, rows_max, now_us)

    def told(self) -> str:
        """Say what the feed has to say."""
        return told_by(self._feed)

    def close(self) -> None:
        self._feed.close()

    def _send(self, piece: Piece, rows_max: int, now_us: int) -> Poll:
        rows_left = piece.batch.num_rows - self._at
        if rows_left == 0:  # only lines that were left out, whose number must be stored nevertheless
            return self._rows(piece, 0, None)
        count = min(self._pacer.rows_due(self._at, now_us), rows_max)
        due_us = self._pacer.due_us(self._at)
        if count == 0:
            return Idle(now_us if due_us is None else due_us)
        return self._rows(piece, count, due_us)

    def _rows(self, piece: Piece, count: int, due_us: int | None) -> Rows:
        start, stop, end = self._at, self._at + count, piece.batch.num_rows
        rows = Rows(
            batch=piece.batch.slice(start, count),
            position=piece.position_after(stop),
            due_us=due_us,
            refused=piece.refused if start == 0 else 0,
            too_large=piece.too_large if start == 0 else 0,
            unparsable=bisect_left(piece.bad_before, stop + (stop == end)) - bisect_left(piece.bad_before, start),
        )
        self._pacer.sent(count)
        self._at = stop
        if stop == end:
            self._piece = None
        return rows
