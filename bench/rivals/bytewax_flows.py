"""The six applications on Bytewax.

Stateless steps use `flat_map_batch` and keyed ones `stateful_batch`, its two operators that see a batch at a time:
`map` and `stateful_map` are made of them, with a call more for each item. Messages stay whole, and what is kept for a
sensor is kept in one place: every item of every step costs. Windows have its windowing operators. Those keep a
watermark for every key, so where all of a stream decides when a window ends there is one key.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.dataflow import Dataflow, Stream

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
    known = op.flat_map_batch(
        "bloom", messages, lambda batch: [(one.source, one) for one in batch if one.source in bloom]
    )
    summaries = op.stateful_batch("summaries", known, by_key(riot.Summary, _summaries))
    together = op.flat_map_batch("together", known, lambda items: [("", message) for _, message in items])
    counts = op.stateful_batch("distinct-count", together, by_key(_no_counts, _counts))
    op.output("output", op.key_rm("published", op.merge("all", summaries, counts)), RecordingSink(recorder))
    return flow


def _summaries(kept: riot.Summary, messages: Sequence[riot.Message]) -> list[str]:
    return [told for message in messages for told in kept.statistics(message)]


def _no_counts() -> list[riot.DistinctCount]:
    return [riot.DistinctCount() for _ in riot.MEASURED]


def _counts(kept: list[riot.DistinctCount], messages: Sequence[riot.Message]) -> list[str]:
    return [told for message in messages for told in riot.counted(message, kept)]


def pred(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Classify messages, and tell how far a regression is off."""
    flow = Dataflow("pred")
    by_sensor = op.flat_map_batch(
        "by-sensor", _messages(flow, port), lambda batch: [(one.source, one) for one in batch]
    )
    answers = op.stateful_batch("answer", by_sensor, by_key(riot.ErrorEstimate, _answers))
    op.output("output", op.key_rm("published", answers), RecordingSink(recorder))
    return flow


def _answers(kept: riot.ErrorEstimate, messages: Sequence[riot.Message]) -> list[Any]:
    told = []
    for message in messages:
        error = kept.estimated(message.values[4], riot.regressed(message))
        told += [
            riot.answered(message, "DTC", float(riot.classified(message))),
            riot.answered(message, "MLR", error),
        ]
    return told


def etl(port: int, recorder: Recorder, settings: Settings) -> Dataflow:
    """Clean, complete and annotate; insert and publish."""
    flow = Dataflow("etl")
    known = riot.known_senders(settings["senders"])
    bloom = riot.bloom_of(known)

    def load(kept: riot.Loaded, messages: Sequence[riot.Message]) -> list[Any]:
        told: list[Any] = []
        for message in messages:
            row, inserted = kept.rows(message, bloom, known)
            told += [inserted, riot.senml(row)]
        return told

    by_sensor = op.flat_map_batch(
        "by-sensor", _messages(flow, port), lambda batch: [(one.source, one) for one in batch]
    )
    loaded = op.stateful_batch("load", by_sensor, by_key(riot.Loaded, load))
    op.output("output", op.key_rm("loaded", loaded), RecordingSink(recorder))
    return flow


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
