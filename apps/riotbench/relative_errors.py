"""How far predictions are off: the average of each sensor's readings, and errors in proportion to it.

In the benchmark one error estimate serves all sensors and divides by whichever average came last, so its results depend
on how two streams happen to interleave. Here both are by sensor, and a row is divided by the average of the sensor's
last complete block of readings before it. Where predictions run ahead of the averages, rows wait for theirs; where
averages run ahead, those still needed are kept. So the results are the same however the two streams interleave.

A row of either stream has the columns of a prediction; an average is told by having no model, and stands in the column
of the readings that it is of.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

import headwater as hw

from .models import Flags, Floats
from .progress import Progress, Waiting, read_progress, write_progress
from .slots import Places, nth_of_slot

SENSOR: Final = "sensor"
MODEL: Final = "model"  # the name of the model that answered
PREDICTED: Final = "predicted"
VALUE: Final = "value"


@dataclass(frozen=True)
class BlockAverage:
    """Averages each sensor's readings, so many in a row at a time; a missing reading does not count."""

    target: str
    size: int
    schema: pa.Schema  # of a prediction

    def __call__(self, batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Return a row for each block that a reading completes, in the order of these readings."""
        readings = _floats(batch[self.target])
        there = np.flatnonzero(~np.isnan(readings))
        codes, values = state.codes[there].astype(np.intp), readings[there]
        begun, sums = state.arrays(2).T  # how many readings of a block there were, and what they add up to
        counts = begun.astype(np.intp)
        numbers = counts[codes] + nth_of_slot(codes)[0]
        totals = counts + np.bincount(codes, minlength=len(counts))
        begins = np.concatenate([[0], np.cumsum(totals // self.size + 1)])  # of each sensor's blocks among all
        blocks = begins[codes] + numbers // self.size
        # What was begun comes first, so that a block's readings are added up in the same order however they came.
        added = np.bincount(np.concatenate([begins[:-1], blocks]), np.concatenate([sums, values]), begins[-1])
        state.put_arrays(np.column_stack([totals % self.size, added[begins[1:] - 1]]))
        completing = np.flatnonzero((numbers + 1) % self.size == 0)
        sensors = batch[SENSOR].take(pa.array(there[completing]))
        return self._averages(sensors, added[blocks[completing]] / self.size)

    def _averages(self, sensors: pa.Array, averages: Floats) -> pa.RecordBatch:
        columns = {field.name: pa.nulls(len(averages), field.type) for field in self.schema}
        columns |= {SENSOR: sensors, self.target: pa.array(averages)}
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)


@dataclass(frozen=True)
class ErrorEstimate:
    """Divides how far each prediction is off by the sensor's average: null until there is one, and where it is zero."""

    target: str
    size: int  # of the blocks that are averaged
    schema: pa.Schema  # of what comes out: a prediction's columns, with the error as its value

    def __call__(self, batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Return the predictions whose averages are known, in order; those that waited come first."""
        is_average = batch[MODEL].is_null().to_numpy(zero_copy_only=False)
        sensors = state.codes.astype(np.intp)
        before = read_progress(state, batch)
        averages = before.averages.followed_by(sensors[is_average], _floats(batch[self.target])[is_average])
        rows, owners = before.waiting.followed_by(_chosen(batch, ~is_average), sensors[~is_average])
        readings = _floats(rows[self.target])
        counts = ~np.isnan(readings)
        needed = self._needed(owners, counts, before.answered)
        ready = needed <= averages.latest[owners]
        answered = before.answered + np.bincount(owners[ready & counts], minlength=len(before.answered))
        still = Waiting(_chosen(rows, ~ready), owners[~ready])
        write_progress(state, Progress(answered, averages.since(answered // self.size), still))
        errors = readings - _floats(rows[PREDICTED])
        return self._estimates(_chosen(rows, ready), errors[ready], averages.of_block(owners[ready], needed[ready]))

    def _needed(self, owners: Places, counts: Flags, answered: Places) -> Places:
        """Return the number of the average that each row needs: how many blocks of its sensor were full before it."""
        needed = np.zeros(len(owners), np.intp)
        counted = owners[counts]
        needed[counts] = (answered[counted] + nth_of_slot(counted)[0]) // self.size
        return needed

    def _estimates(self, rows: pa.RecordBatch, errors: Floats, averages: Floats) -> pa.RecordBatch:
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = errors / averages
        values = pa.array(np.where(np.isfinite(relative), relative, np.nan), from_pandas=True)
        columns = [values if name == VALUE else rows[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _chosen(rows: pa.RecordBatch, which: Flags) -> pa.RecordBatch:
    return rows if which.all() else rows.filter(pa.array(which))


def _floats(column: pa.Array) -> Floats:
    floats: Floats = column.to_numpy(zero_copy_only=False)
    return floats
