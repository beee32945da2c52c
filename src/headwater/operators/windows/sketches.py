"""Approximate aggregates by Apache DataSketches: how many different values, and quantiles, in bounded space.

A sketch is kept as its own bytes, which any other language of DataSketches reads too. Up to a few thousand values
quantiles are exact: a sketch begins to forget only when it is full.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import ceil, log2
from typing import Any, Final

import datasketches
import numpy as np

from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.windows.object_parts import ObjectPart

RSD: Final = 0.05  # relative standard deviation of a distinct count, Spark's default
RSD_MAX: Final = 0.39  # what sixteen registers, the fewest, reach; Spark refuses more too
ACCURACY: Final = 10_000  # the rank of a quantile is off by at most one part in so many; Spark's default

_HLL_ERROR: Final = 1.04  # over the root of the number of registers (Flajolet et al. 2007)
_LG_REGISTERS: Final = range(4, 22)
_KLL_ERROR: Final = (2.296, 0.9723)  # a / k ** b, as DataSketches measured it
_KLL_K: Final = range(8, 65_536)


@dataclass(frozen=True)
class DistinctSketch(ObjectPart):
    """Counts different values but null, by HyperLogLog."""

    rsd: float

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        sketches: dict[int, Any] = {}
        for group, value in zip(rows.groups.tolist(), rows.listed(self.column), strict=True):
            if value is None:
                continue
            if group not in sketches:
                sketches[group] = self._opened(kept[group])
            sketches[group].update(_hashable(value))
        made = list(kept)
        for group, sketch in sketches.items():
            made[group] = sketch.serialize_compact()
        return made

    def combine(self, kept: Sequence[bytes]) -> bytes:
        union = datasketches.hll_union(self._lg_registers)
        for one in kept:
            if one:
                union.update(datasketches.hll_sketch.deserialize(one))
        made: bytes = union.get_result(datasketches.HLL_8).serialize_compact()
        return made

    def value(self, kept: bytes) -> Any:
        return round(datasketches.hll_sketch.deserialize(kept).get_estimate()) if kept else 0

    def _opened(self, kept: bytes) -> Any:
        if kept:
            return datasketches.hll_sketch.deserialize(kept)
        return datasketches.hll_sketch(self._lg_registers, datasketches.HLL_8)

    @property
    def _lg_registers(self) -> int:
        wanted = ceil(2 * log2(_HLL_ERROR / self.rsd))
        return max(_LG_REGISTERS[0], min(wanted, _LG_REGISTERS[-1]))


def _hashable(value: Any) -> Any:
    """Return the value as something that a sketch takes, different if the values are."""
    match value:
        case str():
            return f".{value}"  # a sketch passes over the empty text
        case bytes():
            return "." + value.decode("latin-1")
        case bool():
            return int(value)
        case Decimal():
            return str(value)
    return value


@dataclass(frozen=True)
class QuantileSketch(ObjectPart):
    """Remembers numbers for quantiles, by KLL (Karnin, Lang and Liberty 2016); NaN and null are passed over."""

    accuracy: int

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        groups, values = rows.floats(self.column)
        values = values[np.argsort(groups, kind="stable")]
        ends = np.cumsum(np.bincount(groups, minlength=rows.count)).tolist()
        made = list(kept)
        for group, (start, end) in enumerate(pairwise([0, *ends])):
            if start < end:
                sketch = self._opened(kept[group])
                sketch.update(values[start:end])
                made[group] = sketch.serialize()
        return made

    def combine(self, kept: Sequence[bytes]) -> bytes:
        sketch = self._opened(b"")
        for one in kept:
            if one:
                sketch.merge(datasketches.kll_doubles_sketch.deserialize(one))
        made: bytes = sketch.serialize()
        return made

    def value(self, kept: bytes) -> Any:
        """Return the sketch, or None if it has no number."""
        sketch = self._opened(kept)
        return None if sketch.is_empty() else sketch

    def _opened(self, kept: bytes) -> Any:
        if kept:
            return datasketches.kll_doubles_sketch.deserialize(kept)
        factor, power = _KLL_ERROR
        wanted = ceil((factor * self.accuracy) ** (1 / power))
        return datasketches.kll_doubles_sketch(max(_KLL_K[0], min(wanted, _KLL_K[-1])))
