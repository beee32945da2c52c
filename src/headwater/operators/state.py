"""Keyed state as an operator sees it during a turn.

Three layers, each of which can be thrown away. The store below holds what is committed. `OperatorState` collects the
changes of one turn and reads through to the store. `KeyedState` is what a user's function holds for one batch: if the
function raises, it is dropped, and the turn's changes are as if it had never been called.
"""

from collections.abc import Callable, Iterator, Sequence
from types import NoneType
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from headwater.model import scalars
from headwater.model.keys import KeyedRows, WrongKey, encode_key

ReadState = Callable[[Sequence[bytes]], list[bytes | None]]

_ARRAY: Final = 1  # msgpack extensions: a numpy array,
_TUPLE: Final = 2  # and a tuple, which would come back as a list
_AS_THEY_ARE: Final = frozenset({NoneType, bool, int, float, str, bytes})
_ABSENT: Final = object()


class WrongState(TypeError):
    """A user's function put a value into the state that cannot be kept."""


def encode_value(value: Any) -> bytes:
    """Return the bytes of a value; one that would come back as something else is refused."""
    return _ENCODER.encode(_plain(value))


def decode_value(encoded: bytes) -> Any:
    """Return the value that has these bytes."""
    return _DECODER.decode(encoded)


def _plain(value: Any) -> Any:
    """Return the value in kinds that msgpack gives back as they were."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is list:
        return value if _AS_THEY_ARE.issuperset(map(type, value)) else [_plain(one) for one in value]
    if kind is dict:
        return {_plain_name(name): _plain(one) for name, one in value.items()}
    if kind is tuple:
        return msgspec.msgpack.Ext(_TUPLE, _ENCODER.encode([_plain(one) for one in value]))
    if kind in scalars.KINDS:
        return scalars.extend(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if kind is np.ndarray:
        return _plain_array(value)
    raise WrongState(
        f"a {kind.__name__} cannot be kept as state; "
        "use numbers, strings, bytes, dates, lists, tuples, dicts or numpy arrays"
    )


def _plain_name(name: Any) -> Any:
    if type(name) not in _AS_THEY_ARE:
        raise WrongState(f"a dict with a {type(name).__name__} as key cannot be kept as state; use strings or numbers")
    return name


def _plain_array(array: npt.NDArray[Any]) -> msgspec.msgpack.Ext:
    if array.dtype.hasobject or array.dtype.names is not None:
        raise WrongState(f"a numpy array of {array.dtype} cannot be kept as state; use an array of numbers, or a list")
    header = msgspec.msgpack.encode((array.dtype.str, array.shape))
    return msgspec.msgpack.Ext(_ARRAY, len(header).to_bytes(2, "little") + header + array.tobytes())


def _restore(code: int, data: memoryview) -> Any:
    if code == _TUPLE:
        return tuple(_DECODER.decode(data))
    if code != _ARRAY:
        return scalars.restore(code, data)
    size = int.from_bytes(data[:2], "little")
    dtype, shape = msgspec.msgpack.decode(data[2 : 2 + size])
    return np.frombuffer(data[2 + size :], dtype=np.dtype(dtype)).reshape(shape).copy()


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_restore)


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
            _ABSENT if value is None else decode_value(value) for value in below.read_many(self._encoded)
        ]
        self._changed: set[int] = set()
        self._index: dict[Any, int] | None = None

    def values(self, default: Any = None) -> list[Any]:
        """Return the value of every key, in the order of `keys`."""
        return [default if value is _ABSENT else value for value in self._values]

    def put_values(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
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
        changes: dict[bytes, bytes | None] = {}
        for position in sorted(self._changed):
            value = self._values[position]
            changes[self._encoded[position]] = None if value is _ABSENT else encode_value(value)
        self._below.changes |= changes  # at once: a value that is refused must leave no trace of those before it

    def _position(self, key: Any) -> int:
        if self._index is None:
            self._index = {known: position for position, known in enumerate(self.keys)}
        position = self._index.get(key)
        return self._position_by_bytes(key) if position is None else position

    def _position_by_bytes(self, key: Any) -> int:
        """Find a key that equals one of the batch only as a key: NaN is not equal to itself."""
        try:
            return self._encoded.index(encode_key(key))
        except (ValueError, WrongKey):
            raise KeyError(f"{key!r} is not a key of this batch; a function sees the keys of its rows only") from None
