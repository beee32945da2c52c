"""WordCount: how often each word has come so far."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .words import RandomSentences


@dataclass(frozen=True, kw_only=True)
class WordCount(hw.App):
    """Splits sentences into words and counts each word."""

    name: ClassVar[str] = "storm.word_count"
    wire: ClassVar[hw.Wire] = "text"

    parallelism: int = 1
    seed: int = 1

    def made(self) -> RandomSentences:
        """Return a generator of sentences."""
        return RandomSentences(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Split, then count by word; a word comes out with its new count whenever it comes."""
        words = rows.flat_map(split, name="split", parallelism=self.parallelism)
        return words.key_by("word").stateful(count, name="count", parallelism=self.parallelism)


def split(sentences: pa.RecordBatch) -> pa.RecordBatch:
    """Return the words of a batch of sentences, in order."""
    words = pc.list_flatten(pc.utf8_split_whitespace(sentences["line"]))
    return pa.record_batch({"word": words.filter(pc.not_equal(words, ""))})  # white space at an end leaves an empty one


def count(words: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Return each word with its count, itself included: what was kept, and how many came before it in the batch."""
    kept = np.array(state.values(default=0))
    came = np.bincount(state.codes, minlength=len(kept))
    state.put_values(kept + came)
    return pa.record_batch({"word": words["word"], "count": kept[state.codes] + _place_among_equals(state.codes, came)})


def _place_among_equals(codes: npt.NDArray[np.int32], came: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number the rows of each code from 1 on; `came` says how many there are of each."""
    places = np.empty(len(codes), dtype=np.int64)
    before = np.cumsum(came) - came  # how many rows have a smaller code
    places[np.argsort(codes, kind="stable")] = np.arange(1, len(codes) + 1) - np.repeat(before, came)
    return places
