"""ETL: RIoTBench's extraction, transformation and loading."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import headwater as hw

from .cleaning import BloomFilter, Interpolation, KnownTexts, RangeFilter
from .datasets import MESSAGE_ID, RangesName
from .joining import PUBLISHED, WRITTEN, JoinObservations, Publish, TableInsert, ToSenml
from .parsing import SENSOR, ParseObservations
from .senders import OfSenders


@dataclass(frozen=True, kw_only=True)
class Etl(OfSenders, hw.App):
    """Cleans, completes and annotates the readings of sensors, for a table and for a broker."""

    name: ClassVar[str] = "riotbench.etl"
    messages: ClassVar[Mapping[str, str]] = {"published": "payload"}

    ranges: RangesName = "riot"
    capacity: int = 1_000_000
    rows_per_insert: int = 100
    parsers: int = 1
    parallelism: int = 1
    publishers: int = 1

    def build(self, rows: hw.Stream) -> dict[str, hw.Stream]:
        """Take messages apart, clean and complete their readings, put them together again, and load them twice."""
        data, many = self.described, self.parallelism
        senders = self.known_senders
        parse = ParseObservations(data, tuple(field.name for field in data.observed))
        in_range = RangeFilter(data.ranges_of(self.ranges))
        from_known = BloomFilter(data.bloom_field, KnownTexts(senders[data.id_field].combine_chunks(), self.capacity))
        interpolate = Interpolation(data.interpolated, data.interpolation_window)
        join, insert = JoinObservations(data), TableInsert(data, self.rows_per_insert)
        write, publish = ToSenml(data), Publish(data.topic)

        read = rows.flat_map(parse, schema=parse.schema, on_error="dead-letter", parallelism=self.parsers, name="parse")
        by_sensor = read.key_by(SENSOR)  # from here to the join, so that a sensor's values stay in order
        believed = by_sensor.map(in_range, schema=parse.schema, parallelism=many, name="range_filter")
        trusted = believed.map(from_known, schema=parse.schema, parallelism=many, name="bloom_filter").key_by(SENSOR)
        complete = trusted.stateful(interpolate, schema=parse.schema, parallelism=many, name="interpolation")
        joined = complete.key_by(MESSAGE_ID).stateful(join, schema=data.schema, parallelism=many, name="join")
        annotated = joined.enrich(hw.table(senders), data.id_field, parallelism=many, name="annotate")
        by_sender = annotated.key_by(data.id_field)
        inserted = by_sender.stateful(insert, schema=insert.schema, parallelism=many, name="table_insert")
        written = annotated.map(write, schema=WRITTEN, parallelism=many, name="csv_to_senml")
        published = written.map(publish, schema=PUBLISHED, parallelism=self.publishers, name="publish")
        return {"inserted": inserted, "published": published}
