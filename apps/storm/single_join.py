"""SingleJoin: two streams joined by id, with a limit to how long a row waits for its partner."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .people import PEOPLE_SCHEMA, People


@dataclass(frozen=True, kw_only=True)
class SingleJoin(hw.App):
    """Joins the gender and the age of people by their id; what finds no partner in time is told apart."""

    name: ClassVar[str] = "storm.single_join"

    timeout: str = "30 seconds"
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

    def build(self, rows: hw.Stream) -> dict[str, hw.Stream]:
        """Join the two kinds of rows, and part the pairs from those left alone."""
        timed = rows.with_watermark("ts", self.lag)
        genders = timed.filter(hw.col("kind") == "gender", name="genders").select("id", "gender", "ts")
        ages = timed.filter(hw.col("kind") == "age", name="ages").select("id", "age", "ts")
        near = (f"-{self.timeout}", self.timeout)
        waited = genders.join(
            ages, "id", between=near, event_time="ts", how="full", name="join", parallelism=self.parallelism
        )
        joined, expired = waited.select("id", "gender", "age").split(is_pair, into=("joined", "expired"), name="part")
        return {"joined": joined, "expired": expired}


def is_pair(batch: pa.RecordBatch) -> pa.Array:
    """Say which rows have both sides."""
    return pc.and_(pc.is_valid(batch["gender"]), pc.is_valid(batch["age"]))
