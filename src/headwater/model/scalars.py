"""Dates, times and decimals as msgpack extensions, so that their types survive.

msgpack has numbers, texts and bytes; by itself a library writes a date as a text, and reads a text back.
"""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from headwater.model.errors import StoreError

_MICROSECOND: Final = timedelta(microseconds=1)

# kind -> (code, how it is written, how it is read); codes below 16 are for the modules that use these
_KINDS: Final[dict[type, tuple[int, Callable[[Any], str], Callable[[str], Any]]]] = {
    datetime: (16, datetime.isoformat, datetime.fromisoformat),
    date: (17, date.isoformat, date.fromisoformat),
    time: (18, time.isoformat, time.fromisoformat),
    timedelta: (19, lambda span: str(span // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    Decimal: (20, str, Decimal),
}
_READERS: Final = {code: read for code, _, read in _KINDS.values()}

KINDS: Final = frozenset(_KINDS)


def extend(value: Any) -> msgspec.msgpack.Ext:
    """Return the extension of a value whose type is one of `KINDS`."""
    code, write, _ = _KINDS[type(value)]
    return msgspec.msgpack.Ext(code, write(value).encode())


def restore(code: int, data: memoryview) -> Any:
    """Return the value that has this extension."""
    read = _READERS.get(code)
    if read is None:
        raise StoreError(f"the store holds a value of unknown kind {code}; was it written by a later version?")
    return read(bytes(data).decode())
