"""Statistics that are kept for each observable of each sensor: a smoothed value, its trend, its second moment.

All are keyed by sensor and work on whole batches (see `slots`). Observations without a value must not reach them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

import headwater as hw

from ..chance import whole
from .datasets import MESSAGE_ID, TIMESTAMP
from .parsing import OBSERVABLE, SENSOR, VALUE
from .slots import Floats, Places, Trails, flat, rounds, slots_of

PROCESS_NOISE: Final = 0.125
SENSOR_NOISE: Final = 0.32
FIRST_ERROR: Final = 30.0
TRAINED_VALUES: Final = 10  # what a trend is found from
MOMENT_VALUES: Final = 10  # different values that a second moment is estimated from

KIND: Final = "kind"
VALUES: Final = "values"
RESULT: Final = pa.schema(  # of all statistics alike, so that one operator can publish them
    [
        (MESSAGE_ID, pa.int64()),
        (TIMESTAMP, pa.int64()),
        (SENSOR, pa.string()),
        (OBSERVABLE, pa.string()),
        (KIND, pa.string()),
        (VALUES, pa.list_(pa.float64())),
    ]
)


def result(observations: pa.RecordBatch, kind: str, values: pa.Array) -> pa.RecordBatch:
    """Return a result for each observation."""
    along = [observations[name] for name in (MESSAGE_ID, TIMESTAMP, SENSOR, OBSERVABLE)]
    return pa.RecordBatch.from_arrays([*along, pa.repeat(kind, len(values)), values], schema=RESULT)


def lists_of(values: Floats) -> pa.Array:
    """Return each row of a matrix as a list."""
    ends = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.ascontiguousarray(values).ravel()))


@dataclass(frozen=True)
class Kalman:
    """Smooths each value with what came before, by a Kalman filter of one dimension."""

    observables: tuple[str, ...]

    def __call__(self, observations: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Smooth a batch; a slot keeps its estimate and the error of that."""
        slots = slots_of(observations, state, self.observables)
        kept = state.arrays((len(self.observables), 2), default=(0.0, FIRST_ERROR))
        estimate, error = flat(kept).T
        measured = observations[VALUE].to_numpy()
        smoothed = np.empty(len(measured))
        for rows in rounds(slots):
            where = slots[rows]
            expected = error[where] + PROCESS_NOISE
            gain = expected / (expected + SENSOR_NOISE)
            smoothed[rows] = estimate[where] + gain * (measured[rows] - estimate[where])
            estimate[where], error[where] = smoothed[rows], (1.0 - gain) * expected
        state.put_arrays(kept)
        return observations.set_column(observations.schema.get_field_index(VALUE), VALUE, pa.array(smoothed))


@dataclass(frozen=True)
class Regression:
    """Predicts the next values by a line through the last ten, once there are more than ten."""

    observables: tuple[str, ...]
    horizon: int

    def __call__(self, observations: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Predict for a batch; a slot keeps how many values it has had, and the last of them."""
        slots = slots_of(observations, state, self.observables)
        kept = state.arrays((len(self.observables), TRAINED_VALUES))
        held = flat(kept)
        trails = Trails.of(held[:, 1:], slots, observations[VALUE].to_numpy())
        trained = np.flatnonzero(held[slots, 0] + trails.nth + 1 > TRAINED_VALUES)
        predictions = self._predicted(trails.until(trained, TRAINED_VALUES))
        held[:, 0] += np.bincount(slots, minlength=len(held))
        held[:, 1:] = trails.kept
        state.put_arrays(kept)
        return result(observations.take(pa.array(trained)), "regression", lists_of(predictions))

    def _predicted(self, windows: Floats) -> Floats:
        """Return where the line of least squares through each window goes next.

        A line's value is a sum of the values it was fitted to, each with a weight that only depends on its place. They
        are added one by one: a product of matrices may add them in another order for another number of rows.
        """
        predictions = np.zeros((len(windows), self.horizon))
        for place, weights in enumerate(self._weights()):
            predictions += windows[:, place, None] * weights
        return predictions

    def _weights(self) -> Floats:
        """Return how much the value at each place of a window counts for each prediction."""
        places = np.arange(TRAINED_VALUES) - (TRAINED_VALUES - 1) / 2  # from the middle of the window
        ahead = TRAINED_VALUES - 1 - (TRAINED_VALUES - 1) / 2 + np.arange(1, self.horizon + 1)
        weights: Floats = 1 / TRAINED_VALUES + np.outer(places, ahead) / (places**2).sum()
        return weights


@dataclass(frozen=True)
class SecondMoment:
    """Estimates the second moment of the values' frequencies, the "surprise number" of Alon, Matias and Szegedy.

    Counts are kept for at most ten different values. One that is new when there are ten takes the place of another,
    which chance decides by how many values there were so far: the same in every run.
    """

    observables: tuple[str, ...]
    seed: int

    def __call__(self, observations: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Estimate for a batch; a slot keeps how many values it has had, ten values, and the count of each."""
        slots = slots_of(observations, state, self.observables)
        kept = state.arrays((len(self.observables), 1 + 2 * MOMENT_VALUES))
        held = flat(kept)
        observed = observations[VALUE].to_numpy()
        moments = np.empty(len(observed))
        for rows in rounds(slots):
            cells = held[slots[rows]]
            moments[rows] = self._counted(cells, observed[rows])
            held[slots[rows]] = cells
        state.put_arrays(kept)
        return result(observations, "second_moment", lists_of(moments[:, None]))

    def _counted(self, cells: Floats, observed: Floats) -> Floats:
        """Count one value in each row of cells, and return the moments."""
        values, counts = cells[:, 1 : 1 + MOMENT_VALUES], cells[:, 1 + MOMENT_VALUES :]
        cells[:, 0] += 1
        place = self._places(cells[:, 0], values, counts, observed)
        rows = np.arange(len(cells))
        again = (counts[rows, place] > 0) & (values[rows, place] == observed)
        values[rows, place] = observed
        counts[rows, place] = np.where(again, counts[rows, place] + 1, 1)
        different = np.count_nonzero(counts, axis=1)
        moments: Floats = cells[:, 0] * (2 * counts.sum(axis=1) - different) / different
        return moments

    def _places(self, seen: Floats, values: Floats, counts: Floats, observed: Floats) -> Places:
        """Return where each value is counted: where it was before, else at a free place, else at some other's."""
        known = (counts > 0) & (values == observed[:, None])
        free = counts == 0
        by_chance = whole(seen.astype(np.int64), MOMENT_VALUES, self.seed)
        return np.where(
            known.any(axis=1), known.argmax(axis=1), np.where(free.any(axis=1), free.argmax(axis=1), by_chance)
        )
