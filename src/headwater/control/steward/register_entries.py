"""Entries of a register by app, with an estimate of their memory: what a node stores for others has to be bounded."""

from collections import UserDict
from typing import Final

import msgspec

from headwater.control.messages.app_messages import RegisterEntry

HELD_MAX: Final = 128 << 20  # bytes of memory for all entries of a node, its own and those that it keeps for others
ENTRY_BYTES: Final = 1 << 10  # for one, whatever is in it
BYTES_FOR_ONE: Final = 10  # of memory for a byte of the encoded entry without its flow: encoded, peers are small


class Entries(UserDict[str, RegisterEntry]):
    """Entries by app."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes: dict[str, int] = {}
        self.bytes = 0  # of memory that they take, about

    def __setitem__(self, app: str, entry: RegisterEntry) -> None:
        """Keep an entry."""
        before, after = self._bytes.get(app, 0), bytes_of(entry)
        super().__setitem__(app, entry)
        self._bytes[app] = after
        self.bytes += after - before

    def __delitem__(self, app: str) -> None:
        """Drop an entry."""
        super().__delitem__(app)
        self.bytes -= self._bytes.pop(app)


def bytes_of(entry: RegisterEntry) -> int:
    """Estimate how much memory an entry takes, rather too much than too little."""
    flow = len(entry.spec.flow)
    return ENTRY_BYTES + flow + BYTES_FOR_ONE * (len(msgspec.msgpack.encode(entry)) - flow)
