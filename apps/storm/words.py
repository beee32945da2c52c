"""Words, sentences and random texts like those of Storm's test spouts, each a function of its number."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chance import drawn, whole

NAMES: Final = ("nathan", "mike", "jackson", "golda", "bertels")
SENTENCES: Final = (
    "the river rises in the hills above the town",
    "rain in the hills reaches the town in a day",
    "a gauge by the bridge reads the river every minute",
    "the bridge was built in a dry year",
    "every gauge sends what it reads to the town",
)

_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype="S2")
_UUID_PARTS: Final = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))  # the bytes between the dashes


@dataclass(frozen=True)
class RandomWords:
    """One of five names a row."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        return _picked(NAMES, first, count, self.seed)


@dataclass(frozen=True)
class RandomSentences:
    """One of five sentences a row."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        return _picked(SENTENCES, first, count, self.seed)


@dataclass(frozen=True)
class RandomUuids:
    """A random UUID (version 4, as text) a row."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        numbers = np.arange(first, first + count)
        halves = np.stack([drawn(numbers, self.seed, salt) for salt in (1, 2)], axis=1)
        octets = halves.astype(">u8").view(np.uint8)
        octets[:, 6] = octets[:, 6] & 0x0F | 0x40  # the version
        octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # the variant of RFC 9562
        digits = _HEX[octets].view("S32").reshape(count).astype("U32")
        parts = [pc.utf8_slice_codeunits(pa.array(digits), 2 * begin, 2 * end) for begin, end in _UUID_PARTS]
        return pa.record_batch({"line": pc.binary_join_element_wise(*parts, "-")})


def _picked(texts: tuple[str, ...], first: int, count: int, seed: int) -> pa.RecordBatch:
    picked = whole(np.arange(first, first + count), len(texts), seed)
    return pa.record_batch({"line": pa.array(texts).take(pa.array(picked))})
