"""The placements that this node has disowned: it said that it does not have their state, and must never run them.

Another host may have begun without that state, on our word and with the consent of the app's owner, while a StartAsked
of a steward that knows less is still under way to us. So a node writes down that it disowns a placement before it says
so (write-ahead), and still refuses it after a restart. The latest `DISOWNED_MAX` are kept: each matters only as long as
a message about it can be under way, or a steward has missed the change.
"""

import struct
from hashlib import blake2b
from typing import Final

from headwater.model.errors import StoreFull
from headwater.model.store_contract import Store
from headwater.model.store_layout import DISOWNED_PREFIX
from headwater.model.terms import Lot

DISOWNED_MAX: Final = 1_000  # less than 100 KB of the store
NAME_BYTES: Final = 16  # of an instance: apps may have names longer than a key
_RECORD: Final = struct.Struct(">QQQ")  # when it was written, as a number that grows; the highest lot


class Disowned:
    """The highest lot that was disowned of each instance; in memory alone if there is no store."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._lots: dict[bytes, Lot] = {}  # by the name of the instance, the latest last
        self._written = 0
        if store is not None:
            with store.read() as snapshot:
                records = [(_RECORD.unpack(packed), key) for key, packed in snapshot.scan(DISOWNED_PREFIX)]
            for (written, high, low), key in sorted(records):
                self._lots[key[len(DISOWNED_PREFIX) :]] = (high, low)
                self._written = written

    def __len__(self) -> int:
        """Return of how many instances placements were disowned."""
        return len(self._lots)

    def covers(self, app: str, instance: int, lot: Lot) -> bool:
        """Whether a placement, or a later one of its instance, was disowned."""
        known = self._lots.get(_name(app, instance))
        return known is not None and lot <= known

    def add(self, app: str, instance: int, lot: Lot) -> bool:
        """Disown a placement durably; False if the disk is full: then nobody may be told so."""
        if self.covers(app, instance, lot):
            return True
        name = _name(app, instance)
        others = [one for one in self._lots if one != name]
        oldest = others[0] if len(others) >= DISOWNED_MAX else None
        if self._store is not None:
            try:
                with self._store.write() as txn:
                    txn.put(DISOWNED_PREFIX + name, _RECORD.pack(self._written + 1, *lot))
                    if oldest is not None:
                        txn.delete(DISOWNED_PREFIX + oldest)
            except StoreFull:
                return False
        self._written += 1
        self._lots.pop(name, None)
        self._lots[name] = lot
        if oldest is not None:
            del self._lots[oldest]
        return True


def _name(app: str, instance: int) -> bytes:
    return blake2b(f"{instance}/{app}".encode(), digest_size=NAME_BYTES).digest()
