"""RIoTBench's applications as Structured Streaming's users write them.

The twin of such an application has a stateful operator for each of the flow's, and every one costs a micro-batch a part
of a second. By hand, `transformWithStateInPandas` sees the rows of a key once and does all that is kept for that key in
one function. The lines are taken apart by the applications' own functions, a batch at a time. The one column of a query
is the text of a result. The others need none of this: TM has one stateful operator, and Nexmark's are Spark SQL.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from apps.riotbench.datasets import CITY
from apps.riotbench.parsing import Parse
from bench.rivals import riot_rows as riot

TOLD: Final = pa.schema([("told", pa.string())])
_RESULT: Final = "told string"
_MESSAGE: Final = "number long, timestamp long, source string, longitude double, latitude double, values array<double>"
_PART: Final = "number long, timestamp long, sensor string, obs string, value double"

Frames = Iterable[pd.DataFrame]
Batches = Iterator[pa.RecordBatch]
Query = Callable[[DataFrame, Mapping[str, Any]], DataFrame]
Step = Callable[[Any, Frames, Any], tuple[pd.DataFrame, Any]]  # key, its rows, what was kept: results, what to keep


def stats(lines: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Publish trends, second moments and the number of sensors."""
    parts = lines.mapInArrow(_Observe(settings["senders"]), _PART)
    return _by_key(parts, "sensor", _summaries).unionByName(_by_key(parts, "obs", _counts))


class _Observe:
    """Parses lines, drops what unknown sensors sent, and takes the rest apart."""

    def __init__(self, senders: str) -> None:
        self._senders = senders

    def __call__(self, batches: Batches) -> Batches:
        bloom = riot.bloom_of(riot.known_senders(self._senders))
        for message in _messages(batches):
            known = message.filter(pa.array([source in bloom for source in message["source"].to_pylist()], pa.bool_()))
            rows, times = known.num_rows, len(riot.MEASURED)
            each = pa.array(np.repeat(np.arange(rows), times))
            names = pa.array(riot.MEASURED).take(pa.array(np.tile(np.arange(times), rows)))
            along = [known[name].take(each) for name in ("msgid", "timestamp", "source")]
            values = np.column_stack([known[name].to_numpy() for name in riot.MEASURED]).ravel()
            columns = [*along, names, pa.array(values)]
            yield pa.RecordBatch.from_arrays(columns, names=["number", "timestamp", "sensor", "obs", "value"])


def _messages(batches: Batches) -> Batches:
    parse = Parse(CITY)
    for batch in batches:
        if batch.num_rows:
            yield parse(batch.rename_columns(["line"]))


def _summaries(key: Any, frames: Frames, kept: Any) -> tuple[pd.DataFrame, Any]:
    slots = {
        name: [_thawed(kind, held) for kind, held in zip(_STATISTICS, (kept or {}).get(name, _NONE), strict=True)]
        for name in riot.MEASURED
    }
    told: list[str] = []
    for part in _rows(frames):
        kalman, regression, moment = slots[part[3]]
        predicted = regression.predicted(kalman.smoothed(part[4]))
        told.append(riot.statistic(part, "second_moment", [moment.estimated(part[4])]))
        if predicted is not None:
            told.append(riot.statistic(part, "regression", predicted))
    return _told(told), {name: list(map(_frozen, slot)) for name, slot in slots.items()}


_STATISTICS: Final = (riot.Kalman, riot.Regression, riot.SecondMoment)
_NONE: Final = (None, None, None)


def _counts(key: Any, frames: Frames, kept: Any) -> tuple[pd.DataFrame, Any]:
    count = riot.DistinctCount.opened(kept)
    told = [riot.statistic(part, "distinct_count", [count.counted(part[2])]) for part in _rows(frames)]
    return _told(told), count.closed()


def pred(lines: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Classify messages, and tell how far a regression is off."""
    messages = lines.mapInArrow(_whole_messages, _MESSAGE)
    return messages.mapInArrow(_classified, _RESULT).unionByName(_by_key(messages, "source", _errors))


def _whole_messages(batches: Batches) -> Batches:
    for message in _messages(batches):
        measured = np.column_stack([message[name].to_numpy() for name in riot.MEASURED])
        ends = pa.array(np.arange(0, measured.size + 1, len(riot.MEASURED), dtype=np.int32))
        values = pa.ListArray.from_arrays(ends, pa.array(measured.ravel()))
        along = [message[name] for name in ("msgid", "timestamp", "source", "longitude", "latitude")]
        names = ["number", "timestamp", "source", "longitude", "latitude", "values"]
        yield pa.RecordBatch.from_arrays([*along, values], names=names)


def _classified(batches: Batches) -> Batches:
    for batch in batches:
        messages = [riot.Message(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
        told = [_array(riot.answered(one, "DTC", float(riot.classified(one)))) for one in messages]
        yield pa.RecordBatch.from_arrays([pa.array(told, pa.string())], schema=TOLD)


def _errors(key: Any, frames: Frames, kept: Any) -> tuple[pd.DataFrame, Any]:
    estimate = _thawed(riot.ErrorEstimate, kept)
    told = []
    for message in map(_message, _rows(frames)):
        error = estimate.estimated(message.values[4], riot.regressed(message))
        told.append(_array(riot.answered(message, "MLR", error)))
    return _told(told), _frozen(estimate)


def etl(lines: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """Clean, complete and annotate; insert and publish.

    Messages stay whole, so all is done where a sensor's state is: one way to Python and back.
    """
    return _by_key(lines.mapInArrow(_whole_messages, _MESSAGE), "source", _Load(settings["senders"]))


class _Load:
    """Cleans, completes and annotates the messages of a sensor."""

    def __init__(self, senders: str) -> None:
        self._senders = senders

    def __call__(self, key: Any, frames: Frames, kept: Any) -> tuple[pd.DataFrame, Any]:
        known, bloom = _senders_of(self._senders)
        loaded = riot.Loaded()
        if kept is not None:
            loaded.inserted, slots = kept
            loaded.interpolations = [_thawed(riot.Interpolation, slot) for slot in slots]
        told = []
        for message in map(_message, _rows(frames)):
            row, inserted = loaded.rows(message, bloom, known)
            told += [_array(inserted), riot.senml(row)]
        return _told(told), (loaded.inserted, list(map(_frozen, loaded.interpolations)))


@cache
def _senders_of(path: str) -> tuple[dict[str, list[str]], Any]:
    """Read what is known of the senders, once in each of Spark's Python processes."""
    known = riot.known_senders(path)
    return known, riot.bloom_of(known)


def _by_key(frame: DataFrame, key: str, step: Step) -> DataFrame:
    """Run a function on the rows of each key of a micro-batch, with what is kept for the key."""
    return frame.groupBy(key).transformWithStateInPandas(_Keyed(step), _RESULT, "Append", "None")


class _Keyed(StatefulProcessor):
    """Hands what is kept for a key to a function, and keeps what it returns."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._kept = handle.getValueState("kept", "kept binary")

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Take the rows of a key."""
        before = self._kept.get()
        made, kept = self._step(key, rows, None if before is None else pickle.loads(before[0]))
        self._kept.update((pickle.dumps(kept),))
        if len(made):  # Spark fails on a column of texts without any
            yield made

    def close(self) -> None:
        """Nothing is open."""


def _frozen(kept: Any) -> list[Any]:
    """Return what an object holds; the object itself cannot be kept, since its class goes to workers by value."""
    return [getattr(kept, name) for name in kept.__slots__]


def _thawed(kind: type[Any], held: list[Any] | None) -> Any:
    """Return an object that holds this again, or a new one."""
    made = kind()
    for name, value in zip(kind.__slots__, held or (), strict=held is not None):
        setattr(made, name, value)
    return made


def _rows(frames: Frames) -> Iterator[Any]:
    for frame in frames:
        yield from zip(*(frame[name].tolist() for name in frame), strict=True)


def _message(row: Any) -> riot.Message:
    return riot.Message._make((*row[:5], row[5].tolist()))


def _told(told: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"told": told})


def _array(values: list[Any]) -> str:
    return orjson.dumps(values).decode()


QUERIES: Final[Mapping[str, Query]] = {"stats": stats, "pred": pred, "etl": etl}
