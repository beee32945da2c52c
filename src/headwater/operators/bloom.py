"""Values that are seen for the first time, by bloom filters: a fixed amount of memory, and a few values missed.

There is a filter for each key group, with its share of the capacity and some more, so that the state can be cut by key
like any other: about 1.2 bytes for a value at an error of 1 %, so 1.4 MB for a million; a batch reads and writes only
the filters of its values' groups. With a horizon there is such a set of filters for each stretch of event time of that
length; a value is held against its own stretch and the two beside it, and goes into its own.
"""

from collections.abc import Sequence, Set
from hashlib import blake2b
from math import ceil, sqrt
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rbloom import Bloom

from headwater.model.entries import key_suffix, space_prefix
from headwater.model.keys import KEY_GROUPS, encode_key, keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs
from headwater.operators.columns.segments import Ints
from headwater.operators.state import OperatorState
from headwater.operators.windows.lateness import punctual

FILTERS: Final = 1

_GROUP_BYTES: Final = 2
_KNOWN_MAX: Final = 200_000


class BloomLogic:
    """Remembers values by filters."""

    def __init__(
        self, columns: Sequence[str], time: str | None, within_us: int | None, capacity: int, error: float
    ) -> None:
        """Give each group its share: the groups differ, so three standard deviations more than the mean."""
        self._columns, self._time, self._within_us = list(columns), time, within_us
        mean = capacity / KEY_GROUPS
        self._share, self._error = ceil(mean + 3 * sqrt(mean)) + 1, error
        self._known: dict[Any, tuple[bytes, int]] = {}

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Let the values pass that no filter knows."""
        late = None
        times: Ints = np.zeros(batch.num_rows, np.int64)
        if self._time is not None:
            batch, times, late = punctual(batch, self._time, moment.watermark_us)
        if not batch.num_rows:
            return (None, late)
        passed = self._first_seen(batch, times, moment.state)
        return (batch.select(self._columns).take(pa.array(passed)) if passed else None, late)

    def advance(self, moment: Moment) -> Outputs:
        """Forget the stretches of time that no row can reach any more."""
        if self._within_us is not None and moment.watermark_us > BEGINNING_OF_TIME + 2 * self._within_us:
            ended = moment.watermark_us == END_OF_TIME
            before_us = END_OF_TIME if ended else moment.watermark_us - 2 * self._within_us + 1
            moment.state.delete_many([one.entry for one in moment.state.held(FILTERS, BEGINNING_OF_TIME, before_us)])
        return (None, None)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

    def _first_seen(self, batch: pa.RecordBatch, times: Ints, state: OperatorState) -> list[int]:
        """Return the rows whose values are new, in order."""
        keyed = keyed_rows(batch, self._columns)
        stretches, which = np.unique(times // self._within_us if self._within_us else times * 0, return_inverse=True)
        _, first = np.unique(which * len(keyed.keys) + keyed.codes, return_index=True)
        rows = np.sort(first)
        hashed = [self._hashed(keyed.keys[code]) for code in keyed.codes[rows].tolist()]
        filters = _Filters(state, self._share, self._error)
        starts = [self._starts(stretch) for stretch in stretches.tolist()]
        looked_at = [
            [filters.name(start, group) for start in starts[stretch]]
            for stretch, (group, _) in zip(which[rows].tolist(), hashed, strict=True)
        ]
        filters.read({name for names in looked_at for name in names})
        passed = []
        for row, names, (_, value) in zip(rows.tolist(), looked_at, hashed, strict=True):
            if not any(filters.has(name, value) for name in names):
                filters.add(names[0], value)
                passed.append(row)
        filters.write()
        return passed

    def _starts(self, stretch: int) -> list[int]:
        """Return where the stretches begin that a value is held against, its own first."""
        length = self._within_us
        return [0] if not length else [stretch * length, (stretch - 1) * length, (stretch + 1) * length]

    def _hashed(self, key: Any) -> tuple[bytes, int]:
        """Return the group of a value and its hash, the same on every machine."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) > _KNOWN_MAX:
                self._known.clear()
            encoded = encode_key(key)
            digest = int.from_bytes(blake2b(encoded, digest_size=16).digest(), "little", signed=True)
            found = self._known[key] = key_suffix(encoded)[:_GROUP_BYTES], digest
        return found


def _as_it_is(digest: int) -> int:
    """The hash of a hash."""
    return digest


class _Filters:
    """The filters that a batch touches, by stretch of time and group."""

    def __init__(self, state: OperatorState, share: int, error: float) -> None:
        self._state, self._share, self._error = state, share, error
        self._prefixes: dict[int, bytes] = {}
        self._open: dict[bytes, Bloom | None] = {}
        self._changed: dict[bytes, Bloom] = {}

    def name(self, time_us: int, group: bytes) -> bytes:
        """Return the name of the filter for a stretch of time and a group."""
        prefix = self._prefixes.get(time_us)
        if prefix is None:
            prefix = self._prefixes[time_us] = space_prefix(FILTERS, time_us)
        return prefix + group

    def read(self, names: Set[bytes]) -> None:
        """Read filters, those that are there."""
        listed = list(names)
        for name, value in zip(listed, self._state.read_many(listed), strict=True):
            self._open[name] = None if value is None else Bloom.load_bytes(value, _as_it_is)

    def has(self, name: bytes, digest: int) -> bool:
        """Whether a filter knows a value."""
        found = self._open[name]
        return found is not None and digest in found

    def add(self, name: bytes, digest: int) -> None:
        """Let a filter know a value."""
        found = self._open[name]
        if found is None:
            found = self._open[name] = Bloom(self._share, self._error, _as_it_is)
        found.add(digest)
        self._changed[name] = found

    def write(self) -> None:
        """Keep the filters that have changed."""
        for name, changed in self._changed.items():
            self._state.put(name, changed.save_bytes())
