"""Keyed state as an operator sees it during a turn.

Three layers, each of which can be thrown away. The store below holds what is committed. `OperatorState` collects the
changes of one turn and reads through to the store. `KeyedState` is what a user's function holds for one batch: if the
function raises, it is dropped, and the turn's changes are as if it had never been called.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from headwater.model.keys import KeyedRows, encode_key

ReadState = Callable[[Sequence[bytes]], list[bytes | None]]

_ARRAY: Final = 1  # msgpack extension: a numpy array
_ABSENT: Final = object()


class WrongState(TypeError):
    """A user's function put a value into the state that cannot be kept."""


def _encode_extra(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise WrongState("a numpy array of Python objects cannot be kept as state; use a list")
        header = msgspec.msgpack.encode((value.dtype.str, value.shape))
        return msgspec.msgpack.Ext(_ARRAY, len(header).to_bytes(2, "little") + header + value.tobytes())
    if isinstance(value, np.generic):
        return value.item()
    raise WrongState(
        f"a {type(value).__name__} cannot be kept as state; use numbers, strings, bytes, lists, dicts or numpy arrays"
    )


def _decode_extra(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise WrongState(f"the state holds a value of unknown kind {code}")
    size = int.from_bytes(data[:2], "little")
    dtype, shape = msgspec.msgpack.decode(data[2 : 2 + size])
    return np.frombuffer(data[2 + size :], dtype=np.dtype(dtype)).reshape(shape).copy()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_encode_extra)
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_decode_extra)


class OperatorState:
    """The state of one operator of one instance during one turn."""

    def __init__(self, read: ReadState) -> None:
        """Start without changes over what `read` finds in the store."""
        self._read = read
        self.changes: dict[bytes, bytes | None] = {}

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key as this turn would see it."""
        if not self.changes:
            return self._read(keys)
        missing = [key for key in keys if key not in self.changes]
        stored = dict(zip(missing, self._read(missing), strict=True)) if missing else {}
        return [self.changes[key] if key in self.changes else stored[key] for key in keys]


class KeyedState:
    """The state of the keys in one batch, as a user's function sees it.

    `keys` are the distinct keys of the batch in order of first appearance and `codes[i]` is the index of row i's key,
    which makes it easy to work on all keys at once. A value is kept only when it is put.
    """

    def __init__(self, rows: KeyedRows, below: OperatorState) -> None:
        """Read the values of all keys of the batch at once."""
        self.keys: list[Any] = rows.keys
        self.codes: npt.NDArray[np.int32] = rows.codes
        self._below = below
        self._encoded = [encode_key(key) for key in rows.keys]
        self._values: list[Any] = [
            _ABSENT if value is None else _DECODER.decode(value) for value in below.read_many(self._encoded)
        ]
        self._changed: set[int] = set()
        self._index: dict[Any, int] | None = None

    def values(self, default: Any = None) -> list[Any]:
        """Return the value of every key, in the order of `keys`."""
        return [default if value is _ABSENT else value for value in self._values]

    def put_values(self, values: Sequence[Any]) -> None:
        """Keep a new value for every key, in the order of `keys`; None forgets the key."""
        if len(values) != len(self.keys):
            raise ValueError(f"{len(values)} values were put for {len(self.keys)} keys")
        self._values = [_ABSENT if value is None else value for value in values]
        self._changed = set(range(len(values)))

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key of this batch."""
        value = self._values[self._position(key)]
        return default if value is _ABSENT else value

    def put(self, key: Any, value: Any) -> None:
        """Keep a value for a key of this batch; None forgets the key."""
        position = self._position(key)
        self._values[position] = _ABSENT if value is None else value
        self._changed.add(position)

    def delete(self, key: Any) -> None:
        """Forget a key of this batch."""
        self.put(key, None)

    def rows_of_keys(self) -> Iterator[tuple[Any, npt.NDArray[np.intp]]]:
        """Yield each key with the positions of its rows, in order."""
        order = np.argsort(self.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.codes, minlength=len(self.keys)))
        start = 0
        for key, end in zip(self.keys, ends, strict=True):
            yield key, order[start:end]
            start = int(end)

    def keep(self) -> None:
        """Hand the changes to the turn. The engine calls it once the function has returned."""
        for position in self._changed:
            value = self._values[position]
            self._below.changes[self._encoded[position]] = None if value is _ABSENT else _ENCODER.encode(value)

    def _position(self, key: Any) -> int:
        if self._index is None:
            self._index = {known: position for position, known in enumerate(self.keys)}
        try:
            return self._index[key]
        except KeyError:
            raise KeyError(f"{key!r} is not a key of this batch; a function sees the keys of its rows only") from None
