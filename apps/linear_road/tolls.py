"""Linear Road: toll notification."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

import headwater as hw
from headwater import functions as F

from .reports import MINUTE, REPORT, Whole, position_reports, real_lines
from .road import CARS, NEWS, SPEED, Road, news, news_of_cars
from .traffic import Traffic
from .vehicles import TRACKED, track

NOTIFICATION: Final = pa.schema([(name, pa.int64()) for name in ("type", "vid", "time", "lav", "toll")])
TOLL: Final = 0  # the type of what comes out
CARS_FREE: Final = 50  # a segment with more cars,
SPEED_FREE: Final = 40  # in which they are slower, costs

_SEGMENT: Final = ("xway", "dir", "seg")


@dataclass(frozen=True, kw_only=True)
class TollNotification(hw.App):
    """Linear Road: tells every car that comes into a segment its toll, by the traffic and accidents there."""

    name: ClassVar[str] = "linear_road.tolls"
    wire: ClassVar[hw.Wire] = "text"

    seed: int = 1
    expressways: int = 1
    cars_per_second: int = 40  # that report on each expressway once the traffic is at its height: 1,200 cars
    delay: str = "0 seconds"  # how far behind others a report may come
    parallelism: int = 1  # instances that share the cars, the segments, and the roads

    def made(self) -> Traffic:
        """Return a generator of records."""
        return Traffic(self.expressways, self.cars_per_second, self.seed)

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the sample of the original input."""
        return real_lines(data, rate=rate, loop=loop)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Follow every car, measure every segment by the minute, and bring both together on the road."""
        tracked = (
            rows.flat_map(position_reports, schema=REPORT, on_error="dead-letter", name="reports")
            .with_watermark("at", self.delay)
            .key_by("vid")
            .stateful(track, schema=TRACKED, name="cars", parallelism=self.parallelism)
        )
        speeds = (
            tracked.key_by(*_SEGMENT)
            .window(F.window("at", "5 minutes", "1 minute"))
            .agg(F.avg("spd").alias("mean"), name="speed-average", parallelism=self.parallelism)
            .map(news_of_speed, schema=NEWS, name="speed-news")
        )
        counts = (
            tracked.key_by(*_SEGMENT, "vid")
            .window(F.window("at", "1 minute"))
            .agg(F.count(), name="distinct-cars", parallelism=self.parallelism)
            .select("window.start", *_SEGMENT)
            .key_by(*_SEGMENT)
            .window(F.window("start", "1 minute"))
            .agg(F.count(), name="car-count", parallelism=self.parallelism)
            .map(news_of_count, schema=NEWS, name="count-news")
        )
        news = tracked.flat_map(news_of_cars, schema=NEWS, name="car-news").union(speeds, counts, name="news")
        return news.key_by("xway", "dir").process(
            Tolls(), NOTIFICATION, time_mode="EventTime", name="road", parallelism=self.parallelism
        )


def news_of_speed(speeds: pa.RecordBatch) -> pa.RecordBatch:
    """Round averages, halves up, for the minute that follows their window."""
    mean = speeds["mean"].to_numpy()
    return _statistic(SPEED, speeds, np.floor(mean + 0.5).astype(np.int64))


def news_of_count(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Return numbers of cars for the minute that follows their window."""
    return _statistic(CARS, counts, counts["count"].to_numpy())


def _statistic(kind: str, windows: pa.RecordBatch, values: Whole) -> pa.RecordBatch:
    ends = pc.struct_field(windows["window"], "end").cast(pa.timestamp("s", "UTC")).cast(pa.int64())
    return news(kind, {name: windows[name] for name in _SEGMENT} | {"time": ends, "value": pa.array(values)})


class Tolls(Road):
    """Tells cars the average speed and the toll of the segment they come into."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep the statistics of segments for the minute that it is, and for later ones."""
        super().init(handle)
        self._kept = {kind: handle.getMapState(kind, "time long, seg long", "value long") for kind in (SPEED, CARS)}

    def _measure(self, kind: str, seg: int, time: int, value: int) -> None:
        self._kept[kind].updateValue((time, seg), (value,))

    def _begin(self, minute: int) -> None:
        super()._begin(minute)
        for kept in self._kept.values():
            for time, seg in list(map(tuple, kept.keys())):
                if time < minute * MINUTE:
                    kept.removeKey((time, seg))

    def _answer(self, key: Any, time: int, seg: int, vid: int, accident: int | None) -> Row:
        lav, cars = (self._measured(kind, seg, time - time % MINUTE) for kind in (SPEED, CARS))
        is_free = cars <= CARS_FREE or lav >= SPEED_FREE or accident is not None
        return Row(type=TOLL, vid=vid, time=time, lav=lav, toll=0 if is_free else 2 * (cars - CARS_FREE) ** 2)

    def _measured(self, kind: str, seg: int, minute: int) -> int:
        value = self._kept[kind].getValue((minute, seg))
        return 0 if value is None else int(value[0])
