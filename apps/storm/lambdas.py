"""Lambdas: bolts that are lambda expressions, with variables from around them."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow.compute as pc

import headwater as hw

from .words import RandomUuids


@dataclass(frozen=True, kw_only=True)
class Lambdas(hw.App):
    """Greets the first part of every random id, by a lambda expression."""

    name: ClassVar[str] = "storm.lambdas"
    wire: ClassVar[hw.Wire] = "text"

    prefix: str = "Hello lambda:"
    suffix: str = ":so cool!"
    tag: int = 999
    seed: int = 1

    def made(self) -> RandomUuids:
        """Return a generator of random ids."""
        return RandomUuids(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Take the part before the first dash, then greet it; the lambda takes prefix, suffix and tag along."""
        prefix, suffix, tag = self.prefix, self.suffix, self.tag
        return rows.map(
            lambda batch: {"part": pc.list_element(pc.split_pattern(batch["line"], "-", max_splits=1), 0)}, name="part"
        ).map(
            lambda batch: {
                "text": pc.binary_join_element_wise(prefix, batch["part"], suffix, ""),
                "tag": [tag] * len(batch),
            },
            name="greet",
        )
