"""SlidingWindow: windows that are made of a number of rows, whatever their time."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

import headwater as hw
from headwater import functions as F

from .integers import INTEGER_SCHEMA, RandomIntegers


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(hw.App):
    """Sums the last thirty numbers after every ten, and averages every three such sums."""

    name: ClassVar[str] = "storm.sliding_window"

    size: int = 30
    slide: int = 10
    averaged: int = 3
    seed: int = 1

    @property
    def schema(self) -> pa.Schema:
        """A number, its time and a running number."""
        return INTEGER_SCHEMA

    def made(self) -> RandomIntegers:
        """Return a generator of numbers."""
        return RandomIntegers(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Sum over a sliding window, then average over a tumbling one."""
        sums = rows.window(F.count_window(self.size, self.slide)).agg(F.sum("value").alias("sum"), name="sliding_sum")
        return sums.window(F.count_window(self.averaged)).agg(F.avg("sum").alias("avg"), name="tumbling_avg")
