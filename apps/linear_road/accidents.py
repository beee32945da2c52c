"""Linear Road: accident notification."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql import Row

import headwater as hw

from .reports import REPORT, position_reports, real_lines
from .road import NEWS, Road, news_of_cars
from .traffic import Traffic
from .vehicles import TRACKED, track

WARNING: Final = pa.schema([(name, pa.int64()) for name in ("type", "time", "xway", "seg", "dir", "vid")])
ACCIDENT: Final = 1  # the type of what comes out


@dataclass(frozen=True, kw_only=True)
class AccidentNotification(hw.App):
    """Linear Road: warns cars that come near an accident."""

    name: ClassVar[str] = "linear_road.accidents"
    wire: ClassVar[hw.Wire] = "text"

    seed: int = 1
    expressways: int = 1
    cars_per_second: int = 40  # that report on each expressway once the traffic is at its height: 1,200 cars
    delay: str = "0 seconds"  # how far behind others a report may come
    parallelism: int = 1  # instances that share the cars, and as many that share the roads

    def made(self) -> Traffic:
        """Return a generator of records."""
        return Traffic(self.expressways, self.cars_per_second, self.seed)

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the sample of the original input."""
        return real_lines(data, rate=rate, loop=loop)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Follow every car, find accidents among those that stop, and warn those that come near one."""
        tracked = (
            rows.flat_map(position_reports, schema=REPORT, on_error="dead-letter", name="reports")
            .with_watermark("at", self.delay)
            .key_by("vid")
            .stateful(track, schema=TRACKED, name="cars", parallelism=self.parallelism)
        )
        news = tracked.flat_map(news_of_cars, schema=NEWS, name="news")
        return news.key_by("xway", "dir").process(
            Warnings(), WARNING, time_mode="EventTime", name="road", parallelism=self.parallelism
        )


class Warnings(Road):
    """Tells cars of the nearest accident in their segment and the four ahead."""

    def _answer(self, key: Any, time: int, seg: int, vid: int, accident: int | None) -> Row | None:
        if accident is None:
            return None
        return Row(type=ACCIDENT, time=time, xway=key[0], seg=accident, dir=key[1], vid=vid)
