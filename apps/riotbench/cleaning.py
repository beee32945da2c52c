"""The first half of ETL: values that cannot be true are taken out, and missing ones estimated.

Each operator takes observations as `ParseObservations` makes them and returns as many: what is not believed becomes
null, nothing is dropped.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .datasets import Range
from .parsing import OBSERVABLE, TEXT, VALUE
from .slots import Floats, Places, Trails, flat, slots_of

FALSE_POSITIVES: Final = 0.01  # of the Bloom filters, as RIoTBench has them
ANSWERS_MAX: Final = 200_000  # that a filter remembers: looking one up costs a tenth of hashing it again


@dataclass(frozen=True)
class RangeFilter:
    """Takes out values that lie outside of what is believed of their observable."""

    ranges: tuple[Range, ...]

    def __call__(self, observations: pa.RecordBatch) -> pa.RecordBatch:
        """Filter a batch; an observable without a range passes as it is."""
        which = pc.index_in(observations[OBSERVABLE], value_set=pa.array([known.field for known in self.ranges]))
        lows = pa.array([known.low for known in self.ranges]).take(which)
        highs = pa.array([known.high for known in self.ranges]).take(which)
        values = observations[VALUE]
        outside = pc.or_(pc.less(values, lows), pc.greater(values, highs))
        believed = pc.if_else(pc.fill_null(outside, False), pa.scalar(None, pa.float64()), values)
        return observations.set_column(observations.schema.get_field_index(VALUE), VALUE, believed)


class KnownTexts:
    """A Bloom filter of texts: one that is not in it is certainly unknown.

    Its hash is the same on every machine, and so are its few errors. It travels as its members and is built where it is
    used.
    """

    def __init__(self, members: pa.Array, capacity: int) -> None:
        """Hold the members; the filter is sized for `capacity` of them, or for all if they are more."""
        self._members, self._capacity = members, max(capacity, len(members))
        self._filter: Any = None
        self._answers: dict[str | None, bool] = {}

    def knows(self, texts: pa.Array) -> pa.Array:
        """Say of each text whether it is known; null is not."""
        if len(self._answers) > ANSWERS_MAX:
            self._answers = {}
        answers, encoded = self._answers, texts.dictionary_encode(null_encoding="encode")
        known = [answers[text] if text in answers else self._answer(text) for text in encoded.dictionary.to_pylist()]
        return pa.array(known, pa.bool_()).take(encoded.indices)

    def _answer(self, text: str | None) -> bool:
        if self._filter is None:
            self._filter = self._built()
        known = self._answers[text] = text is not None and _digest(text) in self._filter
        return known

    def _built(self) -> Any:
        from rbloom import Bloom

        built = Bloom(self._capacity, FALSE_POSITIVES, _as_it_is)
        built.update(map(_digest, self._members.to_pylist()))
        return built

    def __getstate__(self) -> dict[str, Any]:
        """Leave the filter behind: it is larger than its members."""
        return {**self.__dict__, "_filter": None, "_answers": {}}


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little", signed=True)


def _as_it_is(digest: int) -> int:
    """The hash of a hash."""
    return digest


@dataclass(frozen=True)
class BloomFilter:
    """Takes out the texts of one observable that are not known."""

    observable: str | None  # None: nothing is checked
    known: KnownTexts

    def __call__(self, observations: pa.RecordBatch) -> pa.RecordBatch:
        """Filter a batch."""
        if self.observable is None:
            return observations
        rows = np.flatnonzero(pc.equal(observations[OBSERVABLE], self.observable).to_numpy(zero_copy_only=False))
        texts = observations[TEXT]
        passes = np.ones(len(texts), np.bool_)
        passes[rows] = self.known.knows(texts.take(pa.array(rows))).to_numpy(zero_copy_only=False)
        if passes.all():
            return observations
        believed = pc.if_else(pa.array(passes), texts, pa.scalar(None, pa.string()))
        return observations.set_column(observations.schema.get_field_index(TEXT), TEXT, believed)


@dataclass(frozen=True)
class Interpolation:
    """Estimates a missing value as the mean of the last values of the same sensor and observable.

    Keyed by sensor. Estimates are not remembered, and so never estimated from. A value that is missing before there was
    any stays missing.
    """

    observables: tuple[str, ...]
    window: int  # how many values; 0: nothing is estimated

    def __call__(self, observations: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Estimate what is missing in a batch."""
        if self.window == 0:
            return observations
        slots = slots_of(observations, state, self.observables)
        rows = np.flatnonzero(slots >= 0)
        if len(rows) == 0:
            return observations
        values = observations[VALUE].to_numpy(zero_copy_only=False).copy()
        values[rows] = self._completed(values[rows], slots[rows], state)
        filled = pa.array(values, mask=np.isnan(values))
        return observations.set_column(observations.schema.get_field_index(VALUE), VALUE, filled)

    def _completed(self, values: Floats, slots: Places, state: hw.KeyedState) -> Floats:
        """Return the values with estimates for the missing ones; a slot keeps how many it has, and the last of them."""
        kept = state.arrays((len(self.observables), 1 + self.window))
        held = flat(kept)
        missing = np.isnan(values)
        trails = Trails.of(held[:, 1:], slots, values, ~missing)
        asked = np.flatnonzero(missing)
        known = np.minimum(self.window, held[slots[asked], 0] + trails.nth[asked])
        sums = trails.before(asked, self.window).sum(axis=1)  # places that nothing was kept in are zero
        with np.errstate(invalid="ignore"):
            values[asked] = np.where(known > 0, sums / known, np.nan)
        held[:, 0] = np.minimum(self.window, held[:, 0] + np.bincount(slots[~missing], minlength=len(held)))
        held[:, 1:] = trails.kept
        state.put_arrays(kept)
        return values
