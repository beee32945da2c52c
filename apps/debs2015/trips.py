"""Taxi trips as the challenge gives them: a line of 17 fields for each, in order of drop-off; and its grid.

Cell 1.1 has its centre at 41.474937, -74.913585. From there x grows to the east and y to the south, and a cell is named
by both: "157.163". As published solutions do, 500 m are taken to be a fixed number of degrees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

TRIPS: Final = Path("debs2015") / "debs2015_sorted_10004.csv"

FIELDS: Final[Mapping[str, pa.DataType]] = {
    "medallion": pa.string(),
    "hack_license": pa.string(),
    "pickup_datetime": pa.timestamp("us"),
    "dropoff_datetime": pa.timestamp("us"),
    "trip_time_in_secs": pa.int64(),
    "trip_distance": pa.float64(),
    "pickup_longitude": pa.float64(),
    "pickup_latitude": pa.float64(),
    "dropoff_longitude": pa.float64(),
    "dropoff_latitude": pa.float64(),
    "payment_type": pa.string(),
    "fare_amount": pa.float64(),
    "surcharge": pa.float64(),
    "mta_tax": pa.float64(),
    "tip_amount": pa.float64(),
    "tolls_amount": pa.float64(),
    "total_amount": pa.float64(),
}

WEST: Final = -74.913585  # the centre of cell 1.1
NORTH: Final = 41.474937
DEGREES_EAST: Final = 0.005986  # 500 m at New York's latitude
DEGREES_SOUTH: Final = 0.004491556
US_PER_SECOND: Final = 1_000_000


@dataclass(frozen=True)
class TripFields:
    """Reads some fields of every line; a line that is no trip raises, which makes it a dead letter."""

    wanted: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the fields."""
        return pa.schema([(name, FIELDS[name]) for name in self.wanted])

    def __call__(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Read a whole batch at once."""
        fields = pc.split_pattern(lines["line"], ",")
        if not pc.all(pc.equal(pc.list_value_length(fields), len(FIELDS))).as_py():
            raise ValueError(f"a trip is a line of {len(FIELDS)} fields, parted by commas")
        places = {name: place for place, name in enumerate(FIELDS)}
        columns = [pc.list_element(fields, places[name]).cast(FIELDS[name]) for name in self.wanted]
        return pa.record_batch(columns, schema=self.schema)


@dataclass(frozen=True)
class Grid:
    """Square cells, `side` by `side`, so many in each 500 m; a cell is known by the number it has, column by column."""

    side: int
    per_500_m: int

    def cells(self, longitudes: pa.Array, latitudes: pa.Array) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the cells of some places, and which of the places are on the grid at all."""
        x = self._steps(longitudes.to_numpy() - WEST, DEGREES_EAST)
        y = self._steps(NORTH - latitudes.to_numpy(), DEGREES_SOUTH)
        inside = (x >= 0) & (x < self.side) & (y >= 0) & (y < self.side)  # NaN is not
        column, row = np.where(inside, x, 0), np.where(inside, y, 0)
        return (column * self.side + row).astype(np.int64), inside

    def _steps(self, degrees: npt.NDArray[np.float64], degrees_of_500_m: float) -> npt.NDArray[np.float64]:
        steps: npt.NDArray[np.float64] = np.floor(degrees / (degrees_of_500_m / self.per_500_m) + 0.5)
        return steps

    def name(self, cell: int) -> str:
        """Return a cell's name."""
        column, row = divmod(cell, self.side)
        return f"{column + 1}.{row + 1}"


def seconds_of(times: pa.Array) -> Numbers:
    """Return times as whole seconds since 1970."""
    seconds: Numbers = times.cast(pa.int64()).to_numpy() // US_PER_SECOND
    return seconds
