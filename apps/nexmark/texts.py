"""The texts of Nexmark's events, made once and drawn by number: letters for every row would cost more than all else.

Lengths are the original generator's: a text of at most `n` letters has 3 to `n - 1`, and the `extra` of a bid, an
auction or a person fills it up to 100, 500 or 200 bytes on average, 20% more or less.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chance import drawn, whole

POOL: Final = 4_096  # different texts of a kind
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000  # the cold ones, each with an address of its own

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST: Final = 3
_FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")

# What the other columns take of an average event, which its `extra` need not fill: a number or time counts 8 bytes.
_REST_OF_PERSON: Final = 8 + 11 + 13 + 19 + 9 + 2
_REST_OF_AUCTION: Final = 8 + 11 + 51 + 40
_REST_OF_BID: Final = 4 * 8


@dataclass(frozen=True)
class Texts:
    """All texts that an event can have; a channel and its address have the same number."""

    names: pa.Array
    emails: pa.Array
    cards: pa.Array
    cities: pa.Array
    states: pa.Array
    items: pa.Array
    descriptions: pa.Array
    channels: pa.Array
    urls: pa.Array
    extras: pa.Array  # as many for people as for auctions as for bids, in this order


@cache
def texts(seed: int) -> Texts:
    """Make the texts of a seed."""
    return Texts(
        names=pa.array([" ".join(both) for both in product(_FIRST_NAMES, _LAST_NAMES)]),
        emails=_joined("@", _words(7, seed, 10), pc.binary_join_element_wise(_words(5, seed, 12), "com", ".")),
        cards=_joined(" ", *(_letters(np.full(POOL, 4), seed, 14 + 2 * group, "0123456789") for group in range(4))),
        cities=pa.array(_CITIES),
        states=pa.array(_STATES),
        items=_words(20, seed, 22, _LETTERS + "  "),
        descriptions=_words(100, seed, 24, _LETTERS + "  "),
        channels=pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]),
        urls=_urls(seed),
        extras=pa.concat_arrays(
            [
                _padding(200, _REST_OF_PERSON, seed, 40),
                _padding(500, _REST_OF_AUCTION, seed, 42),
                _padding(100, _REST_OF_BID, seed, 44),
            ]
        ),
    )


def _urls(seed: int) -> pa.Array:
    """Return an address for every channel; nine of ten cold ones have their number, bits reversed, in it."""
    count = len(HOT_CHANNELS) + CHANNELS
    folders = (_words(5, seed, 30 + 2 * level, _LETTERS + "__", count) for level in range(3))
    pages = _joined("/", pa.repeat("https://www.nexmark.com", count), *folders, pa.repeat("item.htm?query=1", count))
    numbers = np.arange(CHANNELS)
    ids = [f"&channel_id={abs(_signed(int(f'{number:032b}'[::-1], 2)))}" for number in numbers.tolist()]
    told = np.where(whole(numbers, 10, seed, 38) > 0, ids, "")
    return _joined("", pages, pa.array(["", "", "", "", *told.tolist()]))


def _signed(bits: int) -> int:
    """Return 32 bits as Java reads them."""
    return bits - 2**32 if bits >= 2**31 else bits


def _padding(average: int, rest: int, seed: int, salt: int) -> pa.Array:
    """Return texts that fill events up to an average size, a fifth more or less."""
    delta = round(average * 0.2)
    sizes = average - delta + whole(np.arange(POOL), 2 * delta, seed, salt) - rest
    return _letters(sizes, seed, salt + 1)


def _words(below: int, seed: int, salt: int, alphabet: str = _LETTERS, count: int = POOL) -> pa.Array:
    """Return texts of 3 to `below - 1` characters."""
    return _letters(_SHORTEST + whole(np.arange(count), below - _SHORTEST, seed, salt), seed, salt + 1, alphabet)


def _letters(sizes: np.ndarray, seed: int, salt: int, alphabet: str = _LETTERS) -> pa.Array:
    """Return texts of these sizes, of letters drawn from an alphabet."""
    ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    picked = drawn(np.arange(ends[-1]), seed, salt) % np.uint64(len(alphabet))
    letters = np.frombuffer(alphabet.encode(), np.uint8)[picked]
    return pa.StringArray.from_buffers(len(sizes), pa.py_buffer(ends), pa.py_buffer(letters))


def _joined(separator: str, *parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)
