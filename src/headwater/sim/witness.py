"""A trace of all that happens in a world: a digest of every event, and the last events of every node.

Two runs with the same digest are the same: it covers every event with its time, its node and, of a message, the bytes
that would have gone over the wire.
"""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from headwater.model.time import SECOND, Instant

DIGEST_BYTES: Final = 16
REMEMBERED: Final = 12  # events of each node: enough to see how it reached its state
TOLD_CHARS_MAX: Final = 200  # of one event

Seen = tuple[Instant, Any]


class Witness:
    """Keeps a digest of everything, and the last events of every node."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        """Begin a trace; `tell` gets every event as it happens, as a line to read."""
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._encoder = msgspec.msgpack.Encoder()
        self._lately: dict[str, deque[Seen]] = {}
        self._tell = tell

    def saw(self, now: Instant, address: str, event: Any) -> None:
        """Record an event of a node."""
        message = getattr(event, "message", None)
        what = repr(event).encode() if message is None else self._encoder.encode(message)
        self._digest.update(b"%d %b " % (now, address.encode()))
        self._digest.update(what)
        lately = self._lately.get(address)
        if lately is None:
            lately = self._lately[address] = deque(maxlen=REMEMBERED)
        lately.append((now, event))
        if self._tell is not None:
            self._tell(told(now, address, event))

    def noted(self, now: Instant, what: str) -> None:
        """Record an event of the world itself, such as a fault."""
        self._digest.update(b"%d %b " % (now, what.encode()))
        if self._tell is not None:
            self._tell(f"{_clock(now)}  {what}")

    def digest(self) -> str:
        """Return the digest of all events so far."""
        return self._digest.hexdigest()

    def lately(self, addresses: Iterable[str]) -> list[str]:
        """Return the last events of some nodes, in the order in which they happened."""
        seen = [(now, address, event) for address in addresses for now, event in self._lately.get(address, ())]
        return [told(*one) for one in sorted(seen, key=lambda one: one[0])]


def told(now: Instant, address: str, event: Any) -> str:
    """Return an event as a line to read."""
    message = getattr(event, "message", event)
    sender = getattr(message, "sender", None)
    line = f"{_clock(now)}  {address:<5} {'' if sender is None else f'from {sender.address}: '}{_short(message)}"
    return line if len(line) <= TOLD_CHARS_MAX else line[: TOLD_CHARS_MAX - 1] + "…"


def _clock(now: Instant) -> str:
    return f"{now / SECOND:10.6f} s"


def _short(message: Any) -> str:
    """Return a message without its sender, ids as their first digits."""
    fields = getattr(message, "__struct_fields__", None)
    if fields is None:
        return repr(message)
    inside = ", ".join(f"{name}={_value(getattr(message, name))}" for name in fields if name != "sender")
    return f"{type(message).__name__}({inside})"


def _value(value: Any) -> str:
    match value:
        case bytes():
            return value[:4].hex()
        case (bytes(), str(address), str()):
            return address
        case tuple():
            return f"[{' '.join(_value(one) for one in value)}]"
        case msgspec.Struct():
            return _short(value)
    return str(value)
