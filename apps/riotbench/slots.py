"""State for each observable of each sensor, worked on for a whole batch at once.

Rows are keyed by sensor alone, and a sensor keeps an array with a place for each of its observables: that is a fifth of
the keys that (sensor, observable) would be, with the same results, since nothing of one observable meets another's. The
place of a row, its slot, is its key's number times the number of observables, plus that of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .parsing import OBSERVABLE

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


def slots_of(batch: pa.RecordBatch, state: hw.KeyedState, observables: Sequence[str]) -> Places:
    """Return the slot of each row, -1 where its observable is not one of these."""
    number = pc.index_in(batch[OBSERVABLE], value_set=pa.array(observables, pa.string()))
    slots: Places = state.codes.astype(np.intp) * len(observables)
    if number.null_count == 0:
        slots += number.to_numpy()
        return slots
    slots += pc.fill_null(number, 0).to_numpy()
    return np.where(pc.is_null(number).to_numpy(zero_copy_only=False), -1, slots)


def nth_of_slot(slots: Places) -> tuple[Places, Places]:
    """Return how many rows of its slot stand before each row, and the rows ordered by slot."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.concatenate([begins, [len(slots)]]))
    nth = np.empty(len(slots), np.intp)
    nth[order] = np.arange(len(slots)) - np.repeat(begins, lengths)
    return nth, order


def rounds(slots: Places) -> Iterator[Places]:
    """Yield the first rows of all slots, then their second rows and so on: each can be worked on at once."""
    if len(slots) == 0:
        return
    nth, _ = nth_of_slot(slots)
    order = np.argsort(nth, kind="stable")
    ends = np.cumsum(np.bincount(nth))
    for begin, end in pairwise([0, *ends.tolist()]):
        yield order[begin:end]


@dataclass(frozen=True)
class Trails:
    """The values of every slot in order: the last few that were kept, then those of the batch.

    All lie in one array, slot by slot, so that the window before any row is found by arithmetic.
    """

    values: Floats
    place: Places  # of each row: where its own value stands, or would stand
    nth: Places  # of each row: how many values of the batch stand before it in its slot
    _ends: Places
    _width: int

    @classmethod
    def of(cls, kept: Floats, slots: Places, new: Floats, counts: npt.NDArray[np.bool_] | None = None) -> "Trails":
        """Lay the rows' values behind those kept (slots x width); rows that do not count leave no value."""
        slots_all, width = kept.shape
        chosen = np.arange(len(slots)) if counts is None else np.flatnonzero(counts)
        added = np.bincount(slots[chosen], minlength=slots_all)
        begins = np.concatenate([[0], np.cumsum(added + width)])
        values = np.empty(begins[-1])
        values[begins[:-1, None] + np.arange(width)] = kept
        nth = _counted_before(slots, chosen)
        place = begins[slots] + width + nth
        values[place[chosen]] = new[chosen]
        return cls(values, place, nth, begins[1:], width)

    def before(self, rows: Places, length: int) -> Floats:
        """Return the values before each of these rows, the latest last."""
        windows: Floats = self.values[self.place[rows, None] + np.arange(-length, 0)]
        return windows

    def until(self, rows: Places, length: int) -> Floats:
        """Return the values up to and with each of these rows, the latest last."""
        windows: Floats = self.values[self.place[rows, None] + np.arange(1 - length, 1)]
        return windows

    @property
    def kept(self) -> Floats:
        """What to keep for the next batch: the latest of every slot."""
        latest: Floats = self.values[self._ends[:, None] + np.arange(-self._width, 0)]
        return latest


def _counted_before(slots: Places, chosen: Places) -> Places:
    """Return how many of the chosen rows of its slot stand before each row."""
    nth, order = nth_of_slot(slots)
    if len(chosen) == len(slots):
        return nth
    counts = np.zeros(len(slots), np.intp)
    counts[chosen] = 1
    ordered = np.cumsum(counts[order]) - counts[order]  # chosen before each, of all slots,
    before = np.empty(len(slots), np.intp)
    firsts = np.flatnonzero(nth[order] == 0)
    lengths = np.diff(np.concatenate([firsts, [len(slots)]]))
    before[order] = ordered - np.repeat(ordered[firsts], lengths)  # less those of the slots before
    return before


def flat(arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the arrays of keys and observables as those of slots."""
    return arrays.reshape(-1, *arrays.shape[2:])
