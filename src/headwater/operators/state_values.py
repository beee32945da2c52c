"""The values that users' functions keep as state, as bytes that come back as what they were."""

from types import NoneType
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from headwater.model import scalars
from headwater.model.errors import StoreError

_ARRAY: Final = 1  # msgpack extensions: a numpy array,
_TUPLE: Final = 2  # a tuple, which would come back as a list,
_INSTANT: Final = 3  # and what Arrow gives for times and spans of nanoseconds, which Python's own cannot hold
_SPAN: Final = 4
_AS_THEY_ARE: Final = frozenset({NoneType, bool, int, float, str, bytes})


class WrongState(TypeError):
    """A user's function put a value into the state that cannot be kept."""


def encode_value(value: Any) -> bytes:
    """Return the bytes of a value; one that would come back as something else is refused."""
    return _ENCODER.encode(_plain(value))


def decode_value(encoded: bytes) -> Any:
    """Return the value that has these bytes; raises StoreError if none has, whatever is wrong with them."""
    try:
        return _DECODER.decode(encoded)
    except Exception as damage:  # of msgpack, NumPy, pandas, Arrow or a time zone
        raise StoreError(f"a value of {len(encoded)} bytes in the state is damaged: {damage}") from damage


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
    if kind is pd.Timestamp:
        zone = None if value.tz is None else pa.lib.tzinfo_to_string(value.tz)
        return msgspec.msgpack.Ext(_INSTANT, _ENCODER.encode((int(value.asm8.view("i8")), value.unit, zone)))
    if kind is pd.Timedelta:
        return msgspec.msgpack.Ext(_SPAN, _ENCODER.encode((int(value.asm8.view("i8")), value.unit)))
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
    if code == _INSTANT:
        count, unit, zone = _DECODER.decode(data)
        instant = pd.Timestamp(np.datetime64(count, unit))
        return instant if zone is None else instant.tz_localize("UTC").tz_convert(pa.lib.string_to_tzinfo(zone))
    if code == _SPAN:
        return pd.Timedelta(np.timedelta64(*_DECODER.decode(data)))
    if code != _ARRAY:
        return scalars.restore(code, data)
    size = int.from_bytes(data[:2], "little")
    dtype, shape = msgspec.msgpack.decode(data[2 : 2 + size])
    return np.frombuffer(data[2 + size :], dtype=np.dtype(dtype)).reshape(shape).copy()


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_restore)
