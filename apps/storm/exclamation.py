"""Exclamation: Storm's first example."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .words import RandomWords


@dataclass(frozen=True, kw_only=True)
class Exclamation(hw.App):
    """Adds three exclamation marks to every word, twice."""

    name: ClassVar[str] = "storm.exclamation"
    wire: ClassVar[hw.Wire] = "text"

    seed: int = 1

    def made(self) -> RandomWords:
        """Return a generator of words."""
        return RandomWords(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Chain the two bolts."""
        return rows.map(exclaim, name="exclaim1").map(exclaim, name="exclaim2")


def exclaim(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Exclaim a whole batch at once."""
    return pa.record_batch({"line": pc.binary_join_element_wise(batch["line"], "!!!", "")})
