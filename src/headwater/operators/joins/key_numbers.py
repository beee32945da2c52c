"""Numbers for the keys of both sides of a join: what is known of a key lies in an array, at the place of its number."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.entries import KEY_BYTES_MAX, key_suffix
from headwater.model.keys import FEW_ROWS, encode_key, keyed_rows
from headwater.operators.columns.segments import Ints

_LISTED_PER_ROW: Final = 3  # Arrow hashes all known keys anew for every batch: if they are many, a dict is faster
_LISTABLE: Final = frozenset({pa.string(), pa.int64(), pa.int32()})  # equal as keys if they are equal in Arrow


class _Side:
    """The keys of one side: 1 on one side may be True on the other, which Python takes for the same."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self._listed: tuple[pa.Array, Ints] = pa.nulls(0), np.empty(0, np.int64)

    def listed(self, kind: pa.DataType) -> tuple[pa.Array, Ints]:
        """Return all keys, and the number of each."""
        if len(self._listed[1]) != len(self.numbers) or self._listed[0].type != kind:
            keys = pa.array(list(self.numbers), kind)
            self._listed = keys, np.fromiter(self.numbers.values(), np.int64, len(self.numbers))
        return self._listed


class KeyNumbers:
    """The keys that have been met, numbered as they came."""

    def __init__(self) -> None:
        """Know none."""
        self.suffixes: npt.NDArray[np.object_] = np.empty(0, np.object_)  # by number: the ends of their entries' names
        self._groups = np.empty(0, np.uint16)
        self._by_suffix: dict[bytes, int] = {}
        self._long: dict[int, bytes] = {}
        self._sides = (_Side(), _Side())
        self._ranked: tuple[Ints, Ints] = np.empty(0, np.int64), np.empty(0, np.int64)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_suffix)

    def of_suffix(self, suffix: bytes) -> int:
        """Return the number of a key by the end of its entries' names."""
        number = self._by_suffix.setdefault(suffix, len(self._by_suffix))
        if number == len(self.suffixes):  # make room for twice as many
            self.suffixes = np.concatenate((self.suffixes, np.empty(number + 1, np.object_)))
            self._groups = np.concatenate((self._groups, np.empty(number + 1, np.uint16)))
        self.suffixes[number], self._groups[number] = suffix, int.from_bytes(suffix[:2], "big")
        return number

    def of_rows(self, batch: pa.RecordBatch, key: Sequence[str], source: int) -> Ints:
        """Return the number of every row's key."""
        side, column = self._sides[source], batch.column(key[0])
        is_worth_it = len(column) > FEW_ROWS and len(side.numbers) <= _LISTED_PER_ROW * len(column)
        if len(key) > 1 or column.type not in _LISTABLE or column.null_count or not is_worth_it:
            keyed = keyed_rows(batch, key)
            return self._of_keys(side, keyed.keys)[keyed.codes]
        keys, numbers = side.listed(column.type)
        found = pc.index_in(column, keys)
        if found.null_count:
            self._of_keys(side, column.filter(found.is_null()).unique().to_pylist())
            keys, numbers = side.listed(column.type)
            found = pc.index_in(column, keys)
        return numbers[found.to_numpy()]  # type: ignore[no-any-return]

    def long_among(self, numbers: Ints) -> list[bytes]:
        """Return those keys, of these numbers, that the names of their entries do not give back."""
        return [self._long[number] for number in self._long.keys() & set(numbers.tolist())] if self._long else []

    @property
    def in_order(self) -> Ints:
        """The numbers of all keys in the order in which their entries lie in the store, but for those of one group."""
        return self._in_order()[0]

    @property
    def ranks(self) -> Ints:
        """The place of each number in that order."""
        return self._in_order()[1]

    def _in_order(self) -> tuple[Ints, Ints]:
        if len(self._ranked[0]) != len(self):
            order = np.argsort(self._groups[: len(self)], kind="stable")
            ranks = np.empty_like(order)
            ranks[order] = np.arange(len(order))
            self._ranked = order, ranks
        return self._ranked

    def _of_keys(self, side: _Side, keys: list[Any]) -> Ints:
        numbers = side.numbers
        try:
            return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))
        except KeyError:
            for key in keys:
                if key not in numbers:
                    numbers[key] = self._of_key(encode_key(key))
            return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))

    def _of_key(self, key: bytes) -> int:
        number = self.of_suffix(key_suffix(key))
        if len(key) > KEY_BYTES_MAX:
            self._long[number] = key
        return number
