"""The six applications on Bytewax.

Stateless steps use `flat_map_batch` and keyed ones `stateful_batch`, its two operators that see a batch at a time:
`map` and `stateful_map` are made of them, with a call more for each item. Windows have its windowing operators. Those
keep a watermark for every key, so where all of a stream decides when a window ends there is one key.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.dataflow import Dataflow, Stream
from bytewax.operators import StatefulBatchLogic

from bench.rivals import riot_rows as riot
from bench.rivals.bytewax_ends import RecordingSink, SocketSource, by_key
from bench.rivals.recording import Recorder

Settings = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def tm(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Average the speeds of each vehicle, and tell who is too fast."""
    flow = Dataflow("tm")
    lines = op.input("input", flow, SocketSource(port))
    readings = op.flat_map_batch("parse", lines, _readings)
    averages = op.stateful_batch("moving-average", readings, by_key(lambda: [0.0, 0], _averages))
    fast = op.flat_map_batch("trigger", averages, lambda items: [told for _, told in items if told[2] > 50.0])
    op.output("output", fast, RecordingSink(recorder))
    return flow


def _readings(lines: list[bytes]) -> list[tuple[str, tuple[str, float]]]:
    readings = []
    for line in lines:
        reading = orjson.loads(line)
        vehicle, speed = reading.get("vehicle"), reading.get("speed")
        if vehicle is not None and speed is not None:
            readings.append((vehicle, (vehicle, speed)))
    return readings


def _averages(state: list[Any], values: Sequence[tuple[str, float]]) -> list[tuple[str, float, float, int]]:
    total, number = state
    averages = []
    for vehicle, speed in values:
        total += speed
        number += 1
        averages.append((vehicle, speed, total / number, number))
    state[:] = total, number
    return averages


def _messages(flow: Dataflow, port: int) -> Stream[riot.Message]:
    """Read and number messages."""
    numbers = count()
    lines = op.input("input", flow, SocketSource(port))
    return op.flat_map_batch(
        "parse", lines, lambda batch: [riot.message(number, line) for line, number in zip(batch, numbers, strict=False)]
    )


def stats(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Publish trends, second moments and the number of sensors."""
    flow = Dataflow("stats")
    bloom = riot.bloom_of(riot.known_senders(settings["senders"]))
    messages = _messages(flow, port)
    known = op.flat_map_batch("bloom", messages, lambda batch: [one for one in batch if one.source in bloom])
    by_sensor = op.flat_map_batch("observe", known, _by_sensor)
    smoothed = op.stateful_batch("kalman", by_sensor, by_key(lambda: _of_each(riot.Kalman), _smoothed))
    trends = op.stateful_batch("regression", smoothed, by_key(lambda: _of_each(riot.Regression), _trends))
    moments = op.stateful_batch("second-moment", by_sensor, by_key(lambda: _of_each(riot.SecondMoment), _moments))
    by_observable = op.flat_map_batch("by-observable", by_sensor, lambda items: [(part[3], part) for _, part in items])
    counts = op.stateful_batch("distinct-count", by_observable, by_key(riot.DistinctCount, _counts))
    merged = op.merge("all", trends, moments, counts)
    published = op.flat_map_batch("publish", merged, lambda items: [riot.statistic(*told) for _, told in items])
    op.output("output", published, RecordingSink(recorder))
    return flow


def _by_sensor(messages: list[riot.Message]) -> list[tuple[str, riot.Observed]]:
    return [(message.source, part) for message in messages for part in riot.observed(message)]


def _of_each(make: Callable[[], Any]) -> dict[str, Any]:
    return defaultdict(make)


def _smoothed(kept: dict[str, riot.Kalman], parts: Sequence[riot.Observed]) -> list[riot.Observed]:
    return [(*part[:4], kept[part[3]].smoothed(part[4])) for part in parts]


def _trends(kept: dict[str, riot.Regression], parts: Sequence[riot.Observed]) -> list[Any]:
    found = []
    for part in parts:
        predicted = kept[part[3]].predicted(part[4])
        if predicted is not None:
            found.append((part, "regression", predicted))
    return found


def _moments(kept: dict[str, riot.SecondMoment], parts: Sequence[riot.Observed]) -> list[Any]:
    return [(part, "second_moment", [kept[part[3]].estimated(part[4])]) for part in parts]


def _counts(kept: riot.DistinctCount, parts: Sequence[riot.Observed]) -> list[Any]:
    return [(part, "distinct_count", [kept.counted(part[2])]) for part in parts]


def pred(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Classify messages, and tell how far a regression is off."""
    flow = Dataflow("pred")
    messages = _messages(flow, port)
    classes = op.flat_map_batch(
        "decision-tree", messages, lambda batch: [(one, "DTC", float(riot.classified(one))) for one in batch]
    )
    regressed = op.flat_map_batch(
        "regression", messages, lambda batch: [(one.source, (one, riot.regressed(one))) for one in batch]
    )
    errors = op.stateful_batch("error-estimate", regressed, by_key(riot.ErrorEstimate, _errors))
    answers = op.merge("all", classes, op.key_rm("unkey", errors))
    published = op.flat_map_batch("publish", answers, lambda batch: [riot.answered(*one) for one in batch])
    op.output("output", published, RecordingSink(recorder))
    return flow


def _errors(kept: riot.ErrorEstimate, values: Sequence[tuple[riot.Message, float]]) -> list[Any]:
    return [(message, "MLR", kept.estimated(message.values[4], predicted)) for message, predicted in values]


def etl(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Clean, complete, join and annotate; insert and publish."""
    flow = Dataflow("etl")
    known = riot.known_senders(settings["senders"])
    bloom = riot.bloom_of(known)
    messages = _messages(flow, port)
    parts = op.flat_map_batch(
        "observe", messages, lambda batch: [part for one in batch for part in riot.observations(one)]
    )
    believed = op.flat_map_batch("range-filter", parts, lambda batch: [riot.in_range(part) for part in batch])
    trusted = op.flat_map_batch(
        "bloom-filter", believed, lambda batch: [(part[1], _trusted(part, bloom)) for part in batch]
    )
    complete = op.stateful_batch("interpolation", trusted, by_key(lambda: _of_each(riot.Interpolation), _complete))
    by_message = op.flat_map_batch("by-message", complete, lambda items: [(str(part[0]), part) for _, part in items])
    annotated = op.key_rm("annotated", op.stateful_batch("join", by_message, lambda _: Join(known)))
    by_sender = op.flat_map_batch("by-sender", annotated, lambda rows: [(row[2] or "", row) for row in rows])
    inserted = op.key_rm("inserted", op.stateful_batch("table-insert", by_sender, by_key(lambda: [0], _inserted)))
    published = op.flat_map_batch("publish", annotated, lambda rows: [riot.senml(row) for row in rows])
    op.output("output", op.merge("all", inserted, published), RecordingSink(recorder))
    return flow


def _trusted(part: riot.Observation, bloom: Any) -> riot.Observation:
    return (*part[:6], None) if part[5] == riot.SOURCE and part[6] not in bloom else part


def _complete(kept: dict[str, riot.Interpolation], parts: Sequence[riot.Observation]) -> list[riot.Observation]:
    return [part if part[5] == riot.SOURCE else (*part[:6], kept[part[5]].completed(part[6])) for part in parts]


class Join(StatefulBatchLogic[Any, Any, None]):
    """Puts the observations of a message side by side; complete, it is forgotten."""

    def __init__(self, known: dict[str, list[str]]) -> None:
        """Begin with none."""
        self._known = known
        self._parts: dict[str, Any] = {}

    def on_batch(self, values: list[riot.Observation]) -> tuple[list[Any], bool]:
        """Wait for all six."""
        for part in values:
            self._parts[part[5]] = part[6]
        if len(self._parts) < len(riot.OBSERVED):
            return [], StatefulBatchLogic.RETAIN
        return [riot.joined(self._parts, values[0], self._known)], StatefulBatchLogic.DISCARD

    def snapshot(self) -> None:
        """Keep nothing: there is no recovery store."""


def _inserted(state: list[int], rows: Sequence[list[Any]]) -> list[Any]:
    first = state[0]
    state[0] += len(rows)
    return [[*row, number, number // riot.ROWS_PER_INSERT] for number, row in enumerate(rows, first)]


def _bids(flow: Dataflow, port: int) -> Stream[Any]:
    """Read events; all count for the watermark, so those that are no bids come along."""
    lines = op.input("input", flow, SocketSource(port))
    return op.flat_map_batch("parse", lines, lambda batch: [("", event) for event in map(_event, batch)])


def _event(line: bytes) -> dict[str, Any]:
    event: dict[str, Any] = orjson.loads(line)
    event["dateTime"] = datetime.fromisoformat(event["dateTime"])
    return event


def _clock() -> "win.EventClock[Any]":
    """Watermarks by the events alone; Bytewax's own also go on with the system's clock, which a replay must not."""
    return win.EventClock(
        ts_getter=lambda event: event["dateTime"],
        wait_for_system_duration=timedelta(seconds=4),
        now_getter=lambda: EPOCH,
        to_system_utc=lambda _: None,
    )


def nexmark_q5(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Count bids by auction and window, and tell the largest counts of each window."""
    flow = Dataflow("nexmark_q5")
    length, offset = timedelta(seconds=10), timedelta(seconds=2)
    counted = win.fold_window(
        "count",
        _bids(flow, port),
        _clock(),
        win.SlidingWindower(length=length, offset=offset, align_to=EPOCH),
        Counter,
        _counted,
        lambda left, right: left + right,
    )
    hottest = op.flat_map_batch(
        "hottest", counted.down, lambda items: [told for item in items for told in _hottest(item)]
    )
    op.output("output", hottest, RecordingSink(recorder))
    return flow


def _counted(counts: Counter[int], event: dict[str, Any]) -> Counter[int]:
    if event["kind"] == "bid":
        counts[event["auction"]] += 1
    return counts


def _hottest(item: tuple[str, tuple[int, Counter[int]]]) -> Iterable[tuple[int, int, int]]:
    _, (window, counts) = item
    start_us = window * 2_000_000  # windows are numbered from 1970 on, one every two seconds
    most = max(counts.values(), default=0)
    return [(start_us, auction, number) for auction, number in counts.items() if number == most]


def nexmark_q7(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Find the highest bids of each window."""
    flow = Dataflow("nexmark_q7")
    highest = win.fold_window(
        "highest",
        _bids(flow, port),
        _clock(),
        win.TumblingWindower(length=timedelta(seconds=10), align_to=EPOCH),
        list,
        _highest,
        lambda left, right: left + right,
    )
    bids = op.flat_map_batch("bids", highest.down, lambda items: [_told(bid) for _, (_, best) in items for bid in best])
    op.output("output", bids, RecordingSink(recorder))
    return flow


def _highest(best: list[dict[str, Any]], event: dict[str, Any]) -> list[dict[str, Any]]:
    if event["kind"] != "bid":
        return best
    if not best or event["price"] > best[0]["price"]:
        return [event]
    if event["price"] == best[0]["price"]:
        best.append(event)
    return best


def _told(bid: dict[str, Any]) -> tuple[Any, ...]:
    time_us = (bid["dateTime"] - EPOCH) // MICROSECOND
    return bid["auction"], bid["bidder"], bid["price"], time_us, bid["extra"]


FLOWS: dict[str, Callable[[int, Recorder, Settings], Dataflow]] = {
    "stats": stats,
    "pred": pred,
    "etl": etl,
    "nexmark_q5": nexmark_q5,
    "nexmark_q7": nexmark_q7,
    "tm": tm,
}
