"""A histogram of latencies in buckets that grow by a few per cent: small, mergeable, exact enough for a p99."""

from math import log
from typing import Final

_GROWTH: Final = 1.02  # a percentile is right to within 2 %
_SCALE: Final = 1 / log(_GROWTH)


class Histogram:
    """Counts of durations in microseconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.total = 0

    def add(self, duration_us: int, count: int = 1) -> None:
        """Count a duration so many times."""
        bucket = int(log(max(1, duration_us)) * _SCALE)
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.total += count

    def merge(self, other: "Histogram") -> None:
        """Add another histogram's counts."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.total += other.total

    def since(self, before: "Histogram") -> "Histogram":
        """Return what was counted after `before`, which is a copy made earlier."""
        later = Histogram()
        for bucket, count in self._counts.items():
            more = count - before._counts.get(bucket, 0)
            if more:
                later._counts[bucket] = more
                later.total += more
        return later

    def mean(self) -> float | None:
        """Return the mean duration in microseconds; None if empty."""
        if not self.total:
            return None
        return sum(count * float(_GROWTH ** (bucket + 0.5)) for bucket, count in self._counts.items()) / self.total

    def percentile(self, share: float) -> float | None:
        """Return the duration in microseconds that this share of the counted ones do not exceed; None if empty."""
        wanted = share * self.total
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return float(_GROWTH ** (bucket + 0.5))
        return None
