"""How far an error estimate has come with each sensor, for all sensors of a batch together.

Nearly always no row waits and the last two averages are all that is needed: then a sensor's progress is an array of
four numbers, and those of a whole batch are read and written at once. Else it is a list, with whatever there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headwater as hw

from .models import Floats
from .slots import Places, nth_of_slot

RECENT: Final = 2  # averages that are kept of each sensor in any case


@dataclass(frozen=True)
class Averages:
    """The averages of all sensors, by sensor and by number: that of the first block is 1."""

    latest: Places  # the number of each sensor's last average
    owners: Places
    numbers: Places
    values: Floats

    @classmethod
    def last(cls, latest: Places, lengths: Places, values: Floats) -> "Averages":
        """Number the last averages of each sensor, so many of each."""
        owners = np.repeat(np.arange(len(latest)), lengths)
        return cls(latest, owners, (latest - lengths + 1)[owners] + nth_of_slot(owners)[0], values)

    def followed_by(self, owners: Places, values: Floats) -> "Averages":
        """Put averages that have come behind those that were there."""
        numbers = np.concatenate([self.numbers, self.latest[owners] + 1 + nth_of_slot(owners)[0]])
        all_owners = np.concatenate([self.owners, owners])
        order = np.lexsort((numbers, all_owners))
        latest = self.latest + np.bincount(owners, minlength=len(self.latest))
        return Averages(latest, all_owners[order], numbers[order], np.concatenate([self.values, values])[order])

    def of_block(self, owners: Places, numbers: Places) -> Floats:
        """Return the averages of these sensors and numbers; NaN for number 0, which is before the first."""
        found = np.full(len(owners), np.nan)
        wanted = np.flatnonzero(numbers)
        span = int(self.latest.max(initial=0)) + 1
        places = np.searchsorted(self.owners * span + self.numbers, owners[wanted] * span + numbers[wanted])
        found[wanted] = self.values[places]
        return found

    def since(self, firsts: Places) -> "Averages":
        """Leave out what comes before the first that a sensor still needs, and before the most recent."""
        kept = self.numbers >= np.minimum(firsts, self.latest - RECENT + 1)[self.owners]
        return Averages(self.latest, self.owners[kept], self.numbers[kept], self.values[kept])

    @property
    def lengths(self) -> Places:
        """How many there are of each sensor."""
        return np.bincount(self.owners, minlength=len(self.latest))


@dataclass(frozen=True)
class Waiting:
    """Rows that came before the averages they need, and whose they are."""

    rows: pa.RecordBatch
    owners: Places

    def followed_by(self, rows: pa.RecordBatch, owners: Places) -> tuple[pa.RecordBatch, Places]:
        """Return them with the rows that have come behind them."""
        if not len(self.owners):
            return rows, owners
        return pa.concat_batches([self.rows, rows]), np.concatenate([self.owners, owners])


@dataclass(frozen=True)
class Progress:
    """What is known of every sensor of a batch."""

    answered: Places  # how many rows with a reading have been answered
    averages: Averages
    waiting: Waiting


def read_progress(state: hw.KeyedState, batch: pa.RecordBatch) -> Progress:
    """Return what is kept for the sensors of a batch; rows that wait have its columns."""
    try:
        table = state.arrays(2 + RECENT)
    except TypeError:  # some of them are lists
        return _read_lists([_listed(value) for value in state.values()], batch.schema)
    answered, latest = table[:, 0].astype(np.intp), table[:, 1].astype(np.intp)
    lengths = np.minimum(latest, RECENT)
    is_there = np.arange(RECENT) >= RECENT - lengths[:, None]
    averages = Averages.last(latest, lengths, table[:, 2:][is_there])
    return Progress(answered, averages, Waiting(batch.slice(0, 0), np.zeros(0, np.intp)))


def write_progress(state: hw.KeyedState, progress: Progress) -> None:
    """Keep what is known."""
    averages = progress.averages
    if len(progress.waiting.owners) or averages.lengths.max(initial=0) > RECENT:
        state.put_values(_lists(progress))
        return
    table = np.zeros((len(progress.answered), 2 + RECENT))
    table[:, 0], table[:, 1] = progress.answered, averages.latest
    table[averages.owners, 1 + RECENT - averages.latest[averages.owners] + averages.numbers] = averages.values
    state.put_arrays(table)


def _listed(value: Any) -> list[Any]:
    """Return a sensor's progress as a list: how many rows were answered and averages came, the last of these, rows."""
    if value is None:
        return [0, 0, [], []]
    if isinstance(value, np.ndarray):
        answered, latest = int(value[0]), int(value[1])
        return [answered, latest, value[2:].tolist()[max(RECENT - latest, 0) :], []]
    listed: list[Any] = value
    return listed


def _read_lists(kept: Sequence[list[Any]], schema: pa.Schema) -> Progress:
    answered, latest, averages, waiting = ([one[place] for one in kept] for place in range(4))
    rows = [row for ours in waiting for row in ours]
    columns = [pa.array(values, field.type) for values, field in zip(_columns(rows, schema), schema, strict=True)]
    return Progress(
        np.array(answered),
        Averages.last(
            np.array(latest), np.array([len(ours) for ours in averages]), np.array([one for a in averages for one in a])
        ),
        Waiting(
            pa.RecordBatch.from_arrays(columns, schema=schema),
            np.repeat(np.arange(len(kept)), [len(ours) for ours in waiting]),
        ),
    )


def _columns(rows: Sequence[list[Any]], schema: pa.Schema) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * len(schema)


def _lists(progress: Progress) -> list[list[Any]]:
    averages, waiting = progress.averages, progress.waiting
    values = averages.values.tolist()
    ends = np.cumsum(averages.lengths).tolist()
    found = [
        [answered, latest, values[begin:end], []]
        for answered, latest, (begin, end) in zip(
            progress.answered.tolist(), averages.latest.tolist(), pairwise([0, *ends]), strict=True
        )
    ]
    columns = [column.to_pylist() for column in waiting.rows.columns]
    for owner, *row in zip(waiting.owners.tolist(), *columns, strict=True):
        found[owner][3].append(row)
    return found
