"""Profitable areas: query 2 of the DEBS 2015 Grand Challenge."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd
import pyarrow as pa

import headwater as hw

from .areas import EMPTY_S, KEPT, changes
from .input import OfTrips
from .ranking import TOP, arrivals, change_rows
from .trips import Grid, TripFields, seconds_of

GRID: Final = Grid(side=600, per_500_m=2)
EARNED_MAX: Final = 100_000_000  # cents: a million dollars is a mistake

READ: Final = TripFields(
    (
        "medallion",
        "pickup_datetime",
        "dropoff_datetime",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
        "fare_amount",
        "tip_amount",
    )
)
TRIP: Final = pa.schema(
    [
        ("city", pa.string()),
        ("pickup_datetime", pa.timestamp("us")),
        ("dropoff_datetime", pa.timestamp("us")),
        ("taxi", pa.int64()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("earned", pa.int32()),  # cents
    ]
)
FIGURES: Final = (
    ("cell_id", pa.string()),
    ("empty_taxis", pa.int64()),
    ("median_profit", pa.float64()),
    ("profitability", pa.float64()),
)
CHANGE: Final = pa.schema(
    [
        ("pickup_datetime", pa.timestamp("us")),
        ("dropoff_datetime", pa.timestamp("us")),
        *((f"{name}_{rank}", kind) for rank in range(1, TOP + 1) for name, kind in FIGURES),
    ]
)
NO_CHANGE: Final = pa.RecordBatch.from_pylist([], schema=CHANGE)


@dataclass(frozen=True, kw_only=True)
class ProfitableAreas(OfTrips, hw.App):
    """DEBS 2015, query 2: the ten areas where an empty taxi earns most, whenever they or their figures change."""

    name: ClassVar[str] = "debs2015.profitable_areas"

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Read the trips, find their areas, and rank these."""
        return (
            rows.map(READ, schema=READ.schema, on_error="dead-letter", name="read")
            .flat_map(located, schema=TRIP, on_error="dead-letter", name="areas")
            .key_by("city")
            .stateful(top_areas, schema=CHANGE, name="top-ten")
        )


def located(trips: pa.RecordBatch) -> pa.RecordBatch:
    """Return, of every trip that begins and ends on the grid, its cells, its taxi and what it earned."""
    starts, start_inside = GRID.cells(trips["pickup_longitude"], trips["pickup_latitude"])
    ends, end_inside = GRID.cells(trips["dropoff_longitude"], trips["dropoff_latitude"])
    cents = np.rint((trips["fare_amount"].to_numpy() + trips["tip_amount"].to_numpy()) * 100)
    if not np.all(np.abs(cents) < EARNED_MAX):
        raise ValueError(f"no trip earns {EARNED_MAX // 100:,} dollars")
    medallions = trips["medallion"].to_numpy(zero_copy_only=False)
    columns = [
        pa.repeat("New York", len(trips)),  # all trips have one key: they meet in one ranking, in order
        trips["pickup_datetime"],
        trips["dropoff_datetime"],
        pa.array(pd.util.hash_array(medallions, categorize=False).view(np.int64)),
        *(pa.array(numbers.astype(np.int32)) for numbers in (starts, ends, cents)),
    ]
    return pa.record_batch(columns, schema=TRIP).filter(pa.array(start_inside & end_inside))


def top_areas(trips: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Return a row for every trip that changes the ten most profitable areas of its city, or their figures."""
    arriving = np.empty(len(trips), KEPT)
    arriving["ended"] = seconds_of(trips["dropoff_datetime"])
    for name in ("taxi", "start", "end", "earned"):
        arriving[name] = trips[name].to_numpy()
    changed, tops = arrivals(arriving, state, EMPTY_S, changes)
    told = [[figure for area in top for figure in _figures(*area)] for top in tops]
    return change_rows(trips, changed, told, NO_CHANGE)


def _figures(cell: int, empty_taxis: int, profit: float, profitability: float) -> tuple[str, int, float, float]:
    """Return what is told of an area, in dollars."""
    return GRID.name(cell), empty_taxis, profit / 100, profitability / 100
