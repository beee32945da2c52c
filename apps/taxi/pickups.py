"""Pick-ups of passengers: made ones, and the real ones of New York in order of time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from ..bad_lines import good_rows, lines_of, log
from ..chance import normal, uniform, whole
from ..debs2015.trips import TRIPS, TripFields

Floats = npt.NDArray[np.float64]

PICKUP: Final = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("taxi", pa.int64()),
        ("longitude", pa.float64()),
        ("latitude", pa.float64()),
    ]
)

BEGIN_MS: Final = 1_357_516_800_000  # Monday, 2013-01-07
WEEK_MS: Final = 7 * 86_400_000
HOUR_MS: Final = 3_600_000
TAXIS: Final = 13_000

# How busy the hours of a day are in such a city: few trips before dawn, most in the evening; weekends begin later.
WEEKDAY: Final = (9, 6, 4, 3, 3, 5, 10, 17, 21, 20, 19, 19, 20, 20, 21, 19, 17, 21, 26, 27, 25, 24, 23, 17)
WEEKEND: Final = (22, 20, 16, 12, 7, 4, 5, 7, 10, 14, 17, 19, 20, 20, 20, 20, 19, 21, 24, 24, 22, 22, 23, 22)

METRES_EAST: Final = 84_300.0  # of a degree of longitude
METRES_NORTH: Final = 111_200.0


@dataclass(frozen=True)
class PickUps:
    """Makes pick-ups in order of time, so many an hour on average, as the hour of the week has it.

    Three of four are near Manhattan's business quarters by day and its nightlife by night, the others anywhere within a
    few kilometres; 2% have no place (0, 0), as in New York's data.
    """

    per_hour: int = 10_000
    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        rows = np.arange(first, first + count)
        week, place = np.divmod(rows, self.per_hour * 168)
        in_week = _time_of_share((place + uniform(rows, self.seed, 1)) / (self.per_hour * 168))
        at_ms = BEGIN_MS + week * WEEK_MS + in_week.astype(np.int64)
        hour = in_week / HOUR_MS % 24
        day_share = np.clip(1.2 - np.abs(hour - 13) / 8, 0.1, 0.9)
        by_day = uniform(rows, self.seed, 2) < day_share
        spread = np.where(uniform(rows, self.seed, 3) < 0.75, 1_100.0, 4_000.0)
        east = np.where(by_day, 400.0, -1_500.0) + spread * normal(rows, self.seed, 4)
        north = np.where(by_day, 1_000.0, -3_200.0) + spread * normal(rows, self.seed, 5)
        nowhere = uniform(rows, self.seed, 6) < 0.02
        columns = [
            pa.array(at_ms * 1_000).cast(pa.timestamp("us", "UTC")),
            pa.array(whole(rows, TAXIS, self.seed, 7)),
            pa.array(np.where(nowhere, 0.0, np.round(-73.98 + east / METRES_EAST, 6))),
            pa.array(np.where(nowhere, 0.0, np.round(40.75 + north / METRES_NORTH, 6))),
        ]
        return pa.record_batch(columns, schema=PICKUP)


def _time_of_share(share: Floats) -> Floats:
    """Return when in a week that share of its pick-ups is reached, in milliseconds."""
    hours = np.array([*(5 * WEEKDAY), *(2 * WEEKEND)], np.float64)
    reached = np.concatenate(([0.0], np.cumsum(hours) / hours.sum()))
    times: Floats = np.interp(share, reached, np.arange(len(reached)) * HOUR_MS)
    return times


@dataclass(frozen=True)
class RealPickUps:
    """The pick-ups of the DEBS 2015 trips, as meters would have told them: when a trip began, not when it ended."""

    data: Path
    loop: bool = False

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Read the trips when the flow starts; in a loop each time some hours later, so that time goes on."""
        pickups = _in_order(self.data / TRIPS)
        times = pickups["at"]
        if not len(times):
            return
        span = times[-1].as_py() - times[0].as_py()
        later_by = timedelta(hours=span // timedelta(hours=1) + 1)
        while True:
            yield from pickups.to_batches(max_chunksize=1_000)
            if not self.loop:
                return
            later = pc.add(pickups["at"], pa.scalar(later_by, pa.duration("us")))
            pickups = pickups.set_column(0, pickups.field(0), later)


def _in_order(path: Path) -> pa.Table:
    trips = _trips(path)
    columns = [
        trips["pickup_datetime"].cast(PICKUP.field("at").type),  # the taxis' clocks, as they are
        trips["medallion"].combine_chunks().dictionary_encode().indices.cast(pa.int64()),
        trips["pickup_longitude"],
        trips["pickup_latitude"],
    ]
    return pa.table(columns, schema=PICKUP).sort_by("at")


def _trips(path: Path) -> pa.Table:
    """Return the trips of a file; lines that are none are left out."""
    try:
        lines = lines_of(path)
    except OSError as failure:
        raise hw.ConnectorError(f"{path} cannot be read: {failure.strerror}; docs/data.md says what it is") from failure
    fields = TripFields(("pickup_datetime", "medallion", "pickup_longitude", "pickup_latitude"))
    trips = pa.Table.from_batches(good_rows(lines, fields), schema=fields.schema)
    left_out = len(lines) - len(trips)
    if lines and left_out == len(lines):
        raise hw.ConnectorError(f"{path} is not a file of trips: none of its lines is one ({left_out} in all)")
    if left_out:
        log.warning("%s: %d of %d lines are no trips, and left out", path, left_out, len(lines))
    return trips
