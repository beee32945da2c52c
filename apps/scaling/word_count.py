"""WordCount in four stages: sentences, words, counts, results."""

from dataclasses import dataclass
from typing import ClassVar

import headwater as hw

from ..storm.word_count import count, split
from ..storm.words import RandomSentences


@dataclass(frozen=True, kw_only=True)
class WordCount(hw.App):
    """Splits sentences and counts words, each with as many instances as wanted."""

    name: ClassVar[str] = "scaling.word_count"
    wire: ClassVar[hw.Wire] = "text"

    parallelism: int = 2
    seed: int = 1

    def made(self) -> RandomSentences:
        """Return a generator of sentences."""
        return RandomSentences(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Split, then count by word."""
        words = rows.flat_map(split, name="split", parallelism=self.parallelism)
        return words.key_by("word").stateful(count, name="count", parallelism=self.parallelism)
