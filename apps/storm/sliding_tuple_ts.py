"""SlidingTupleTs: a sliding window by the time at which rows were made, not by when they arrive."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

import headwater as hw
from headwater import functions as F

from .integers import INTEGER_SCHEMA, RandomIntegers


@dataclass(frozen=True, kw_only=True)
class SlidingTupleTs(hw.App):
    """Sums numbers over the last five seconds of their own time, every three seconds."""

    name: ClassVar[str] = "storm.sliding_tuple_ts"

    size: str = "5 seconds"
    slide: str = "3 seconds"
    lag: str = "5 seconds"
    seed: int = 1

    @property
    def schema(self) -> pa.Schema:
        """A number, its time and a running number."""
        return INTEGER_SCHEMA

    def made(self) -> RandomIntegers:
        """Return a generator of numbers."""
        return RandomIntegers(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Sum each window once no row of it can come any more."""
        timed = rows.with_watermark("ts", self.lag)
        return timed.window(F.window("ts", self.size, self.slide)).agg(F.sum("value").alias("sum"), name="sliding_sum")
