"""How many different sensors have sent an observable, so far: by HyperLogLog, in a kilobyte."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headwater as hw

from .estimating import lists_of, result
from .parsing import SENSOR

DISTINCT_COUNT: Final = "distinct_count"


@dataclass(frozen=True)
class DistinctCount:
    """Says with each observation how many different sensors have sent its observable; keyed by observable."""

    log2_registers: int

    def __call__(self, observations: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Count a batch; an observable keeps its sketch."""
        sensors = observations[SENSOR].to_pylist()
        estimates = np.empty(len(sensors))
        kept = []
        for (_, rows), before in zip(state.rows_of_keys(), state.values(), strict=True):
            sketch = self._opened(before)
            estimates[rows] = _estimates(sketch, [sensors[row] for row in rows.tolist()])
            kept.append(sketch.serialize_updatable())
        state.put_values(kept)
        return result(observations, DISTINCT_COUNT, lists_of(np.round(estimates)[:, None]))

    def _opened(self, kept: bytes | None) -> Any:
        import datasketches

        if kept is not None:
            return datasketches.hll_sketch.deserialize(kept)
        return datasketches.hll_sketch(self.log2_registers, datasketches.HLL_8)


def _estimates(sketch: Any, sensors: list[str]) -> list[float]:
    """Return the estimate after each of these."""
    update, estimate = sketch.update, sketch.get_estimate
    made = []
    for sensor in sensors:
        update(sensor)
        made.append(estimate())
    return made
