"""JoinBolt: two streams joined by id in tumbling windows."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

import headwater as hw
from headwater import functions as F

from .people import PEOPLE_SCHEMA, People


@dataclass(frozen=True, kw_only=True)
class JoinBolt(hw.App):
    """Joins the gender and the age of people by their id, in windows of ten seconds."""

    name: ClassVar[str] = "storm.join_bolt"

    window: str = "10 seconds"
    lag: str = "1 second"
    parallelism: int = 1
    seed: int = 1

    @property
    def schema(self) -> pa.Schema:
        """Genders and ages, told apart by `kind`."""
        return PEOPLE_SCHEMA

    def made(self) -> People:
        """Return a generator of people."""
        return People(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Join the two kinds of rows."""
        timed = rows.with_watermark("ts", self.lag)
        genders = timed.filter(hw.col("kind") == "gender", name="genders").select("id", "gender", "ts")
        ages = timed.filter(hw.col("kind") == "age", name="ages").select("id", "age", "ts")
        window = F.window("ts", self.window)
        joined = genders.join(ages, "id", window=window, name="join", parallelism=self.parallelism)
        return joined.select("id", "gender", "age")
