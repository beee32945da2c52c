"""An operator's keyed state in the store, and a worker's cache of it.

To read the state of a thousand keys takes a quarter of a millisecond, as long as many operators compute. Only turns of
an instance change the state of its keys, and the record of its queue counts them. So what a worker read and wrote in
its last turn of an instance is valid if no other turn has been committed since. What all keys share is cached for one
turn only: other instances of the operator may change it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headwater.model.entries import SHARED
from headwater.model.ids import InstanceId
from headwater.model.store_contract import Store
from headwater.operators.state import Keepsake

REMEMBERED_MAX: Final = 100_000  # entries of all instances together: some tens of megabytes

_UNKNOWN: Final = object()

Known = dict[bytes, bytes | None]


class _Remembered(Known):
    """The cached state of an operator, and what the operator has derived from it."""

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        self.keepsake = Keepsake()


class StoredState:
    """The committed state of one operator."""

    def __init__(self, store: Store, prefix: bytes, known: Known | None = None) -> None:
        """Read below this prefix; what is cached is not read again."""
        self._store, self._prefix = store, prefix
        self._known: Known = {} if known is None else known
        self._shared: Known = {}  # cached for this turn only
        self.keepsake = known.keepsake if isinstance(known, _Remembered) else None

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these entries."""
        if len(keys) == 1 and keys[0] in self._shared:
            return [self._shared[keys[0]]]
        known = self._known
        if not known:
            return self._read(keys)
        try:
            return [known[key] for key in keys]
        except KeyError:
            return self._read_unknown(keys)

    def _read_unknown(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values = [self._known.get(key, _UNKNOWN) for key in keys]
        missing = [place for place, value in enumerate(values) if value is _UNKNOWN]
        if missing:
            read = self._read([keys[place] for place in missing])
            for place, value in zip(missing, read, strict=True):
                values[place] = value
        return values  # type: ignore[return-value]  # nothing unknown is left

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        prefix, known = self._prefix, self._known
        with self._store.read() as snapshot:
            values = snapshot.get_many([prefix + key for key in keys])
        known.update(zip(keys, values, strict=True))
        for key in {key for key in keys if key[0] == SHARED}:
            self._shared[key] = known.pop(key)
        return values

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` up to but without `stop`, in order."""
        prefix, end = self._prefix, self._prefix + stop
        with self._store.read() as snapshot:
            for key, value in snapshot.scan(prefix, prefix + start):
                if key >= end:
                    return
                yield key[len(prefix) :], value

    def gather(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """Return those entries at once."""
        prefix, end, cut = self._prefix, self._prefix + stop, len(self._prefix)
        found: list[tuple[bytes, bytes]] = []
        add = found.append
        with self._store.read() as snapshot:
            for key, value in snapshot.scan(prefix, prefix + start):
                if key >= end:
                    break
                add((key[cut:], value))
        return found


class StateMemory:
    """A worker's cache of the state of instances, each as of a turn of its queue."""

    def __init__(self) -> None:
        self._known: dict[InstanceId, tuple[int, dict[int, Known], int]] = {}  # as of a turn, and the number of entries
        self._entries = 0

    def recall(self, instance: InstanceId, turns: int) -> dict[int, Known]:
        """Return the cached state of an instance, by operator, if its queue has had so many turns; to be added to."""
        turn, known, _ = self._known.get(instance, (-1, {}, 0))
        if turn != turns:
            return {}
        for held in known.values():
            if isinstance(held, _Remembered):
                held.keepsake.revert()
        return known

    def keep(
        self,
        instance: InstanceId,
        turns: int,
        known: dict[int, Known],
        changes: Mapping[int, Mapping[bytes, bytes | None]],
    ) -> None:
        """Cache what a committed turn has read and written, as of `turns`."""
        self.forget(instance)
        for operator, changed in changes.items():
            held = known.setdefault(operator, {})
            if isinstance(held, _Remembered) and held.keepsake.is_new:
                held.clear()  # the operator has derived what it needs from them
                continue
            held.update(changed)
            # A deleted key is hardly ever read again, and would fill the cache.
            for key in [key for key, value in changed.items() if value is None or key[0] == SHARED]:
                held.pop(key, None)
        for operator, held in known.items():
            if isinstance(held, _Remembered):
                held.keepsake.settle()
            else:
                known[operator] = _Remembered(held)
        size = _size(known)
        if self._entries + size > REMEMBERED_MAX:
            self._known.clear()
            self._entries = 0
        if known and size <= REMEMBERED_MAX:
            self._known[instance] = (turns, known, size)
            self._entries += size

    def forget(self, instance: InstanceId) -> None:
        """Drop the cached state of an instance."""
        self._entries -= self._known.pop(instance, (0, {}, 0))[2]


def _size(known: Mapping[int, Known]) -> int:
    """Return the number of cached entries, with those that an operator's derived value stands for."""
    return sum(len(held) + (held.keepsake.entries if isinstance(held, _Remembered) else 0) for held in known.values())
