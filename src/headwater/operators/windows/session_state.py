"""The open sessions of a key as they lie in the store, and how sessions become one."""

import struct
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.operators.columns.cell_names import cell_name, suffix_of

_TIMER: Final = struct.Struct("<q")
_SESSION: Final = struct.Struct("<qqq?I")  # start, end, rows since it fired, whether it fired at its end, bytes of cell


@dataclass(slots=True)
class Session:
    """A session of a key; what its cells hold belongs together and has to be combined."""

    start_us: int
    end_us: int
    fresh: int  # rows since it fired
    has_fired: bool = False  # at its end
    cells: list[bytes] = field(default_factory=list)
    is_touched: bool = False  # by the rows at hand

    def due_us(self, lateness_us: int) -> int:
        """Return when something is to be done about it: to fire it, or to forget it."""
        return self.end_us + lateness_us if self.has_fired else self.end_us


@dataclass(slots=True)
class KeySessions:
    """The open sessions of a key in order, and where its timer stands."""

    name: bytes  # of their entry
    key: Any
    timer_us: int | None
    sessions: list[Session]

    def name_in(self, space: int, time_us: int) -> bytes:
        """Return the name of another entry of the key."""
        return cell_name(space, time_us, suffix_of(self.name))


def decode_sessions(name: bytes, key: Any, entry: bytes | None) -> KeySessions:
    """Return the sessions of a key from its entry."""
    owned = KeySessions(name, key, None, [])
    if entry is None:
        return owned
    (owned.timer_us,), at = _TIMER.unpack_from(entry), _TIMER.size
    while at < len(entry):
        start_us, end_us, fresh, has_fired, length = _SESSION.unpack_from(entry, at)
        at += _SESSION.size + length
        owned.sessions.append(Session(start_us, end_us, fresh, has_fired, [entry[at - length : at]]))
    return owned


def encode_sessions(owned: KeySessions) -> bytes:
    """Return the entry of a key's sessions, which have one cell each."""
    assert owned.timer_us is not None, "open sessions without a timer would never fire"
    pieces = [_TIMER.pack(owned.timer_us)]
    for one in owned.sessions:
        (cell,) = one.cells
        pieces += (_SESSION.pack(one.start_us, one.end_us, one.fresh, one.has_fired, len(cell)), cell)
    return b"".join(pieces)


def merged(sessions: list[Session]) -> list[Session]:
    """Return the sessions that these make together: one that begins by the end of another is one with it."""
    if len(sessions) == 1:
        return sessions
    made: list[Session] = []
    for one in sorted(sessions, key=lambda session: session.start_us):
        last = made[-1] if made else None
        if last is None or one.start_us > last.end_us:
            made.append(one)
            continue
        last.end_us = max(last.end_us, one.end_us)
        last.fresh += one.fresh
        last.cells = last.cells + one.cells
        last.is_touched |= one.is_touched
    return made
