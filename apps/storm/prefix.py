"""Prefix: a function with a setting of its own, which travels with it to the workers."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .words import RandomWords


@dataclass(frozen=True)
class PutInFront:
    """A function that puts one text in front of every line."""

    text: str

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Do so for a whole batch at once."""
        return pa.record_batch({"line": pc.binary_join_element_wise(self.text, batch["line"], "")})


@dataclass(frozen=True, kw_only=True)
class Prefix(hw.App):
    """Puts a text in front of every word."""

    name: ClassVar[str] = "storm.prefix"
    wire: ClassVar[hw.Wire] = "text"

    prefix: str = "Hello "
    seed: int = 1

    def made(self) -> RandomWords:
        """Return a generator of words."""
        return RandomWords(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """One bolt."""
        return rows.map(PutInFront(self.prefix), name="prefix")
