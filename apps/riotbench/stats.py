"""STATS: RIoTBench's statistical summaries, in the variant that EdgeWise is measured with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .cleaning import KnownTexts
from .counting import DistinctCount
from .datasets import MESSAGE_ID, TIMESTAMP
from .estimating import KIND, RESULT, VALUES, Kalman, Regression, SecondMoment
from .joining import PUBLISHED
from .lines import escaped
from .parsing import OBSERVABLE, SENSOR, ParseObservations
from .senders import OfSenders


@dataclass(frozen=True, kw_only=True)
class Stats(OfSenders, hw.App):
    """Summarises the readings of sensors: their trend, their second moment, how many sensors there are."""

    name: ClassVar[str] = "riotbench.stats"
    messages: ClassVar[Mapping[str, str]] = {"results": "payload"}

    capacity: int = 1_000_000
    log2_registers: int = 10
    parsers: int = 1
    parallelism: int = 1
    publishers: int = 1

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Take messages apart, drop what unknown sensors sent, and publish three statistics of the rest."""
        data, many = self.described, self.parallelism
        parse = ParseObservations(data, data.measured, absent=False)
        senders = KnownTexts(self.known_senders[data.id_field].combine_chunks(), self.capacity)
        kalman = Kalman(data.measured)
        regression = Regression(data.measured, data.prediction_horizon)
        second_moment = SecondMoment(data.measured, self.seed)
        distinct_count = DistinctCount(self.log2_registers)
        publish = PublishResults(data.topic)

        parsed = rows.flat_map(
            parse, schema=parse.schema, on_error="dead-letter", parallelism=self.parsers, name="parse"
        )
        known = parsed.key_by(SENSOR).filter(BloomCheck(senders), parallelism=many, name="bloom_filter")
        by_sensor, by_observable = known.key_by(SENSOR), known.key_by(OBSERVABLE)
        smoothed = by_sensor.stateful(kalman, schema=parse.schema, parallelism=many, name="kalman").key_by(SENSOR)
        trends = smoothed.stateful(regression, schema=RESULT, parallelism=many, name="regression")
        moments = by_sensor.stateful(second_moment, schema=RESULT, parallelism=many, name="second_moment")
        counts = by_observable.stateful(distinct_count, schema=RESULT, parallelism=many, name="distinct_count")
        results = trends.union(moments, counts)
        return results.map(publish, schema=PUBLISHED, parallelism=self.publishers, name="publish")


@dataclass(frozen=True)
class BloomCheck:
    """Lets the observations of known sensors pass."""

    known: KnownTexts

    def __call__(self, observations: pa.RecordBatch) -> pa.Array:
        """Say which rows of a batch pass."""
        return self.known.knows(observations[SENSOR])


@dataclass(frozen=True)
class PublishResults:
    """Writes each result as JSON, addressed to a topic."""

    topic: str

    def __call__(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Write a batch."""
        numbers = _written(results[VALUES])
        payload = pc.binary_join_element_wise(
            '{"msgid":',
            results[MESSAGE_ID].cast(pa.string()),
            ',"timestamp":',
            results[TIMESTAMP].cast(pa.string()),
            ',"sensor":"',
            escaped(results[SENSOR]),
            '","obs":"',
            results[OBSERVABLE],
            '","',
            results[KIND],
            '":[',
            pc.binary_join(numbers, ","),
            "]}",
            "",
        )
        return pa.RecordBatch.from_arrays([pa.repeat(self.topic, len(payload)), payload], schema=PUBLISHED)


def _written(values: pa.ListArray) -> pa.ListArray:
    """Write numbers as JSON; what has overflowed is null."""
    numbers = values.flatten()
    texts = numbers.cast(pa.string())
    finite = pc.is_finite(numbers)
    if not pc.all(finite).as_py():
        texts = pc.if_else(finite, texts, "null")
    return pa.ListArray.from_arrays(pc.subtract(values.offsets, values.offsets[0]), texts)
