"""What is measured: six applications that ship with Headwater, their inputs as lines, and which row a result is of.

Every engine reads the same lines. Its results are plain lists and texts, the same from all engines. What a result holds
says which row caused it: a message's id, a count, or, for a window, its end, which the watermark has to pass. From that
row's due time its latency counts.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from apps.nexmark.events import BASE_TIME
from apps.nexmark.q5 import HotItems
from apps.nexmark.q7 import HighestBid
from apps.riotbench.datasets import CITY
from apps.riotbench.etl import Etl
from apps.riotbench.identities import made_metadata
from apps.riotbench.parsing import Parse
from apps.riotbench.pred import Pred
from apps.riotbench.stats import Stats
from apps.traffic.monitoring import TrafficMonitoring

Rows = npt.NDArray[np.int64]
Normal = tuple[tuple[Any, ...], tuple[Any, ...]]  # what names a result, and the numbers it tells
Result = Any  # a list or a text, as JSON gives it back

MADE_AT_ONCE: Final = 50_000
SENSORS: Final = 100  # EdgeWise's messages are of 88 places: enough rows of each that all operators have work
EVENTS_PER_S: Final = 250  # of event time; at 5,000 a second the auction runs 20 times as fast as it says
DELAY_US: Final = 4_000_000  # of Nexmark's watermark
SECOND_US: Final = 1_000_000
NOWHERE: Final = -1  # the row of a result that no row caused: what a window has when the input ends


@dataclass(frozen=True)
class Contest(ABC):
    """One application under measurement."""

    name: str
    title: str
    pace: float  # rows a second, for latency
    rows: int  # made, enough for some seconds of the fastest engine

    @abstractmethod
    def app(self) -> hw.App:
        """Return the application."""

    @abstractmethod
    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return the application's results in the form that is compared."""

    @abstractmethod
    def normal(self, result: Result) -> Normal:
        """Tell apart what names a result and what it says; ids that engines make up are left out."""

    @abstractmethod
    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """Return which row caused each result."""

    def settings(self, place: Path) -> dict[str, Any]:
        """Return what other engines have to know, written to files where it is much."""
        return {}

    def made(self, rows: int) -> Iterator[bytes]:
        """Make that many lines, in pieces."""
        app, make = self.app(), self.app().made()
        for first in range(0, rows, MADE_AT_ONCE):
            batch = make(first, min(MADE_AT_ONCE, rows - first))
            texts = batch["line"] if app.wire == "text" else json_lines(batch)
            yield b"".join(text.as_buffer().to_pybytes() + b"\n" for text in texts)


@dataclass(frozen=True)
class Input:
    """The lines of a contest in a file, and where each begins."""

    contest: Contest
    lines: Path
    offsets: Path
    settings: Mapping[str, Any]

    @classmethod
    def make(cls, contest: Contest, place: Path, rows: int | None = None) -> "Input":
        """Make the lines."""
        made = cls(contest, place / f"{contest.name}.lines", place / f"{contest.name}.npy", contest.settings(place))
        ends = [np.zeros(1, np.int64)]
        with made.lines.open("wb") as file:
            for piece in contest.made(rows or contest.rows):
                newlines = np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n")) + 1
                ends.append(newlines + ends[-1][-1])
                file.write(piece)
        np.save(made.offsets, np.concatenate(ends))
        return made

    def first_lines(self, count: int) -> list[bytes]:
        """Return the first lines."""
        offsets = np.load(self.offsets, mmap_mode="r")
        end = int(offsets[min(count, len(offsets) - 1)])
        with self.lines.open("rb") as file:
            return file.read(end).splitlines()

    def causes(self, results: Sequence[Result], rows: int) -> Rows:
        """Return which of the first rows caused each result."""
        return self.contest.causes(self.first_lines(rows), results)


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object without its nulls; texts must need no escapes."""
    parts: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_string(column.type):
            texts = pc.binary_join_element_wise("", column, "", '"')
        elif pa.types.is_timestamp(column.type):
            texts = pc.binary_join_element_wise('"', pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ"), '"', "")
        else:
            texts = column.cast(pa.string())
        parts.append(pc.binary_join_element_wise(f'"{name}":', texts, ""))
    inside = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", inside, "}", "")


@dataclass(frozen=True)
class Traffic(Contest):
    """Falcon's traffic monitoring: a running average per vehicle, and who is too fast."""

    def app(self) -> hw.App:
        """Return the application."""
        return TrafficMonitoring()

    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return vehicle, speed, average, count."""
        return columns_as_rows(batch)

    def normal(self, result: Result) -> Normal:
        """A vehicle's results are numbered."""
        vehicle, speed, average, count = result
        return (vehicle, count), (speed, average)

    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """Vehicles send in turn."""
        vehicles = TrafficMonitoring().vehicles
        return np.array([(count - 1) * vehicles + int(vehicle[1:]) for vehicle, _, _, count in results], np.int64)


@dataclass(frozen=True)
class Messages(Contest):
    """RIoTBench's messages, whose ids Headwater makes of their text; other engines number them."""

    def settings(self, place: Path) -> dict[str, Any]:
        """Write down what is known of the senders."""
        known = {
            sender: [location, kind] for sender, location, kind in columns_as_rows(made_metadata(CITY, SENSORS, 1))
        }
        path = place / "senders.json"
        path.write_text(json.dumps(known), encoding="utf-8")
        return {"senders": str(path)}

    @staticmethod
    def ids(lines: Sequence[bytes]) -> dict[int, int]:
        """Return the row of each id, made up or counted."""
        texts = pa.record_batch({"line": pa.array([line.decode() for line in lines])})
        made = Parse(CITY)(texts)["msgid"].to_pylist()
        return {**{row: row for row in range(len(lines))}, **{made_up: row for row, made_up in enumerate(made)}}

    def looked_up(self, lines: Sequence[bytes], ids: Iterable[int]) -> Rows:
        """Return the rows of these ids."""
        rows = self.ids(lines)
        return np.array([rows.get(one, NOWHERE) for one in ids], np.int64)


@dataclass(frozen=True)
class Statistics(Messages):
    """RIoTBench's STATS."""

    def app(self) -> hw.App:
        """Return the application."""
        return Stats(sensors=SENSORS)

    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return the messages that are published."""
        return batch["payload"].to_pylist()  # type: ignore[no-any-return]

    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """The id stands first in the text."""
        return self.looked_up(lines, (int(text[text.index(":") + 1 : text.index(",")]) for text in results))

    def normal(self, result: Result) -> Normal:
        """The kind of a statistic is the name of its field."""
        told = orjson.loads(result)
        kind, values = list(told.items())[-1]
        return (told["timestamp"], told["sensor"], told["obs"], kind), tuple(values)


@dataclass(frozen=True)
class Predictions(Messages):
    """RIoTBench's PRED, with the models that come with it."""

    def app(self) -> hw.App:
        """Return the application."""
        return Pred(sensors=SENSORS)

    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return id, sensor, time, kind, model, value, message."""
        return columns_as_rows(batch)

    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """The id stands first."""
        return self.looked_up(lines, (told[0] for told in results))

    def normal(self, result: Result) -> Normal:
        """The message's text repeats the id, which is cut off, and the value, which may be written otherwise."""
        _, sensor, timestamp, kind, model, value, text = result
        told = text.partition(",")[2].rpartition(":")[0]
        named, _, observed = told.partition("obsVal:")
        numbers = [float(number) for number in observed.rpartition(",")[0].split(",")]
        return (sensor, timestamp, kind, model, named.split(",")[1]), (value, *numbers)


@dataclass(frozen=True)
class Loading(Messages):
    """RIoTBench's ETL."""

    def app(self) -> hw.App:
        """Return the application."""
        return Etl(sensors=SENSORS)

    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return rows as they are inserted, and messages as they are published."""
        return columns_as_rows(batch) if sink == "inserted" else batch["payload"].to_pylist()

    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """What is published has no id: time, place, temperature and humidity tell it from others."""
        rows = self.ids(lines)
        texts = pa.record_batch({"line": pa.array([line.decode() for line in lines])})
        names = ("timestamp", "longitude", "latitude", "temperature", "humidity")
        columns = [Parse(CITY)(texts)[name].to_pylist() for name in names]
        published = {told: row for row, told in enumerate(zip(*columns, strict=True))}
        found = [
            published.get(_told(result), NOWHERE) if isinstance(result, str) else rows.get(result[0], NOWHERE)
            for result in results
        ]
        return np.array(found, np.int64)

    def normal(self, result: Result) -> Normal:
        """Texts name a result, numbers are what it says."""
        if isinstance(result, str):
            told = orjson.loads(result)
            result = ["published", told["bt"], *(entry.get("sv", _number(entry.get("v"))) for entry in told["e"])]
        else:
            # Neither the number of a sender's row, nor of its batch: in which order messages of one instant are whole
            # again behind the join is not said, and engines differ in it.
            result = ["inserted", *result[1:-2]]
        named = tuple(value for value in result if isinstance(value, str))
        return named, tuple(value for value in result if not isinstance(value, str))


def _told(payload: str) -> tuple[Any, ...]:
    told = orjson.loads(payload)
    place = [_number(entry["v"]) for entry in told["e"][1:5]]
    return (int(told["bt"]), *place)


def _number(value: str | None) -> float | None:
    return None if value in (None, "null") else float(value)


@dataclass(frozen=True)
class Windows(Contest):
    """Nexmark's queries: a window is out when an event has come that lies the watermark's delay behind its end."""

    def trigger(self, ends_us: Sequence[int], events: int) -> Rows:
        """Return the event that lets each of these windows out."""
        since = np.array(ends_us, np.int64) + DELAY_US - int(BASE_TIME.timestamp()) * SECOND_US
        rows = -(-since * EVENTS_PER_S // SECOND_US)
        return np.where(rows < events, rows, NOWHERE)


@dataclass(frozen=True)
class HotAuctions(Windows):
    """Nexmark's query 5."""

    def app(self) -> hw.App:
        """Return the application."""
        return HotItems(event_rate=EVENTS_PER_S)

    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return the window's start in microseconds, the auction, the number of bids."""
        return columns_as_rows(batch)

    def normal(self, result: Result) -> Normal:
        """All of it is whole numbers."""
        return tuple(result), ()

    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """Windows have ten seconds."""
        return self.trigger([start + 10 * SECOND_US for start, _, _ in results], len(lines))


@dataclass(frozen=True)
class HighestBids(Windows):
    """Nexmark's query 7."""

    def app(self) -> hw.App:
        """Return the application."""
        return HighestBid(event_rate=EVENTS_PER_S)

    def items(self, sink: str, batch: pa.RecordBatch | pa.Table) -> list[Result]:
        """Return auction, bidder, price, time in microseconds, padding."""
        return columns_as_rows(batch)

    def normal(self, result: Result) -> Normal:
        """All of it is whole numbers and a text."""
        return tuple(result), ()

    def causes(self, lines: Sequence[bytes], results: Sequence[Result]) -> Rows:
        """A bid's window begins at a full ten seconds."""
        size = 10 * SECOND_US
        return self.trigger([(told[3] // size + 1) * size for told in results], len(lines))


def columns_as_rows(table: pa.RecordBatch | pa.Table) -> list[Result]:
    """Return rows as lists; an instant is its number of microseconds."""
    columns = [
        (
            column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            if pa.types.is_timestamp(column.type)
            else column
        )
        for column in table.columns
    ]
    return [list(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


CONTESTS: Final[Mapping[str, Contest]] = {
    contest.name: contest
    for contest in (
        Statistics("stats", "RIoTBench STATS", 1_000, 250_000),
        Predictions("pred", "RIoTBench PRED", 1_000, 300_000),
        Loading("etl", "RIoTBench ETL", 1_000, 250_000),
        HotAuctions("nexmark_q5", "Nexmark Q5", 5_000, 600_000),
        HighestBids("nexmark_q7", "Nexmark Q7", 5_000, 800_000),
        Traffic("tm", "Falcon TM", 1_000, 2_000_000),
    )
}
