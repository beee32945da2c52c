"""One direction of an expressway: who comes into which segment, and what has happened on the road until then.

All that a car is told depends on earlier minutes only: an accident counts from the minute after the one in which it
happened until the one in which it is cleared, and statistics are of whole minutes. So what a minute's cars are told can
be said as soon as event time has come to that minute, when everything earlier has arrived. A car that comes before
waits for that, on a timer; in a stream in order that is no longer than the turn takes.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ListState, StatefulProcessor, StatefulProcessorHandle

from .reports import MINUTE

CROSSING: Final = "crossing"  # a car comes into a segment
STOP: Final = "stop"
LEAVE: Final = "leave"  # a car that was stopped is elsewhere
SPEED: Final = "speed"  # the average speed in a segment, over the five minutes before the time of the row
CARS: Final = "cars"  # the number of cars in a segment, in the minute before

NEWS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("xway", pa.int64()),
        ("dir", pa.int64()),
        ("seg", pa.int64()),
        ("time", pa.int64()),
        ("vid", pa.int64()),  # of a car, else -1
        ("lane", pa.int64()),
        ("pos", pa.int64()),
        ("value", pa.int64()),  # of a statistic, else -1
    ]
)

EAST: Final = 0
UPSTREAM: Final = 4  # so many segments before that of an accident are concerned too

_MINUTE_MS: Final = MINUTE * 1_000

Tuples = Sequence[tuple[Any, ...]]


def news_of_cars(tracked: pa.RecordBatch) -> pa.RecordBatch:
    """Return what reports tell the road: crossings, stops, and stopped cars that have left."""
    left = tracked.filter(pc.greater_equal(tracked["left_xway"], 0))
    places = {name: left[f"left_{name}"] for name in ("xway", "dir", "seg", "lane", "pos")}
    return pa.concat_batches(
        [
            news(CROSSING, _columns(tracked.filter(tracked["crossed"]))),
            news(STOP, _columns(tracked.filter(tracked["stopped"]))),
            news(LEAVE, _columns(left) | places),
        ]
    )


def news(kind: str, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return rows of one kind."""
    count = len(columns["xway"])
    known = columns | {"kind": pa.repeat(kind, count)}
    nothing = pa.repeat(pa.scalar(-1, pa.int64()), count)
    return pa.record_batch([known.get(name, nothing) for name in NEWS.names], schema=NEWS)


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


class Road(StatefulProcessor):
    """Knows the accidents on one direction of an expressway, and answers the cars that come into a segment.

    Two cars that are stopped at one place are an accident, one for each segment at most, until either of them is seen
    elsewhere. What happens within a second is taken in this order: cars leave, then others stop, by their numbers.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep what has not come into effect yet, and what is the case now."""
        self._handle = handle
        self._minute = handle.getValueState("minute", "minute long")
        self._waiting = handle.getListState("waiting", "time long, seg long, vid long")
        self._moves = handle.getListState("moves", "time long, stops boolean, vid long, seg long, lane long, pos long")
        self._stopped = handle.getListState("stopped", "vid long, seg long, lane long, pos long")
        self._accidents = handle.getListState("accidents", "seg long, one long, other long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Take the news in, let cars of later minutes wait, answer all others; those of past minutes are too late."""
        now = timerValues.getCurrentWatermarkInMs() // _MINUTE_MS
        crossings, moves = [], []
        for kind, _, _, seg, time, vid, lane, pos, value in rows:
            if kind in (SPEED, CARS):
                self._measure(kind, seg, time, value)
            elif time < now * MINUTE:
                continue
            elif kind == CROSSING:
                crossings.append((time, seg, vid))
            else:
                moves.append((time, kind == STOP, vid, seg, lane, pos))
        if moves:
            self._moves.appendList(moves)
        for minute in {time // MINUTE for time, _, _ in crossings if time // MINUTE > now}:
            self._handle.registerTimer(minute * _MINUTE_MS)
        yield from self._answered(key, crossings, now)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Answer the cars that have waited for a minute."""
        yield from self._answered(key, [], expiredTimerInfo.getExpiryTimeInMs() // _MINUTE_MS)

    def _answered(self, key: Any, crossings: Tuples, now: int) -> Iterator[Row]:
        """Answer these cars and those that wait, up to the minute that it is, minute by minute; let the others wait."""
        was_waiting = self._waiting.exists()
        crossings = sorted([*map(tuple, self._waiting.get()), *crossings] if was_waiting else crossings)
        waiting = [crossing for crossing in crossings if crossing[0] // MINUTE > now]
        if was_waiting or waiting:
            _put(self._waiting, waiting)
        for minute, cars in groupby(
            crossings[: len(crossings) - len(waiting)], key=lambda crossing: crossing[0] // MINUTE
        ):
            begun = self._minute.get()
            if begun is None or begun[0] < minute:
                self._minute.update((minute,))
                self._begin(minute)
            ahead = accidents_ahead([seg for seg, _, _ in self._accidents.get()], key[1])
            answers = (self._answer(key, time, seg, vid, ahead.get(seg)) for time, seg, vid in cars)
            yield from (answer for answer in answers if answer is not None)

    def _begin(self, minute: int) -> None:
        """Let what happened before a minute come into effect: since event time is there, all of it has arrived."""
        moves = sorted(tuple(move) for move in self._moves.get())
        due = [move for move in moves if move[0] < minute * MINUTE]
        if due:
            stopped = {vid: tuple(place) for vid, *place in self._stopped.get()}
            accidents = {seg: (one, other) for seg, one, other in self._accidents.get()}
            for move in due:
                _apply(move, stopped, accidents)
            _put(self._stopped, [(vid, *place) for vid, place in stopped.items()])
            _put(self._accidents, [(seg, *cars) for seg, cars in accidents.items()])
            _put(self._moves, moves[len(due) :])

    def _measure(self, kind: str, seg: int, time: int, value: int) -> None:
        """Take note of a statistic of a segment, for the minute that begins at a time."""

    @abstractmethod
    def _answer(self, key: Any, time: int, seg: int, vid: int, accident: int | None) -> Row | None:
        """Return what a car that comes into a segment is told, given the segment of the next accident ahead."""


def accidents_ahead(accidents: Sequence[int], direction: int) -> dict[int, int]:
    """Return the segments that have an accident or one up to four further on, each with that of the nearest."""
    step = 1 if direction == EAST else -1
    return {seg - step * distance: seg for distance in range(UPSTREAM, -1, -1) for seg in accidents}


def _apply(move: tuple[Any, ...], stopped: dict[int, tuple[int, ...]], accidents: dict[int, tuple[int, int]]) -> None:
    """Let a car stop or leave, and with it perhaps an accident happen or be cleared."""
    _, stops, vid, seg, *place = move
    if not stops:
        stopped.pop(vid, None)
        if vid in accidents.get(seg, ()):
            del accidents[seg]
        return
    others = [other for other, where in stopped.items() if where == (seg, *place)]
    stopped[vid] = (seg, *place)
    if others and seg not in accidents:
        accidents[seg] = (others[0], vid)


def _put(state: ListState, values: list[tuple[Any, ...]]) -> None:
    """Replace a list; PySpark does not let an empty one be put."""
    if values:
        state.put(values)
    else:
        state.clear()
