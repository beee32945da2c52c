"""Latencies: gathered as arrays, told as percentiles in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

Microseconds = npt.NDArray[np.int64]

SHARES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)  # of the raw percentiles in the CSV file


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that reached a sink: when each was due at the source, and when it was there."""

    created_us: Microseconds
    arrived_us: Microseconds

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.created_us)

    def between(self, begin_us: int, end_us: int) -> "Arrivals":
        """Keep the rows that were due in this window."""
        inside = (self.created_us >= begin_us) & (self.created_us < end_us)
        return Arrivals(self.created_us[inside], self.arrived_us[inside])

    @property
    def latency_ms(self) -> npt.NDArray[np.float64]:
        """The latency of every row."""
        return np.asarray((self.arrived_us - self.created_us) / 1_000)

    def longest_gap_ms(self) -> float:
        """Return the longest time in which nothing arrived."""
        gaps = np.diff(np.unique(self.arrived_us))
        return float(gaps.max()) / 1_000 if len(gaps) else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Latencies in milliseconds."""

    rows: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float


def join(parts: Sequence[Arrivals]) -> Arrivals:
    """Put the rows of several sinks together."""
    if not parts:
        return Arrivals(np.empty(0, np.int64), np.empty(0, np.int64))
    return Arrivals(
        np.concatenate([one.created_us for one in parts]), np.concatenate([one.arrived_us for one in parts])
    )


def summarize(arrivals: Arrivals) -> Summary:
    """Return the percentiles; without rows there is nothing to tell, which is the caller's fault."""
    if len(arrivals) == 0:
        raise ValueError("no row arrived in the measured window; measure for longer than the latency")
    values = np.percentile(arrivals.latency_ms, (50, 90, 95, 99, 99.9, 100))
    return Summary(len(arrivals), *(round(float(value), 3) for value in values))


def percentiles(arrivals: Arrivals) -> dict[str, float]:
    """Return the raw percentiles for the CSV file."""
    values = np.percentile(arrivals.latency_ms, SHARES) if len(arrivals) else np.full(len(SHARES), np.nan)
    return {f"p{share:g}": round(float(value), 3) for share, value in zip(SHARES, values, strict=True)}


def middle(summaries: Sequence[Summary]) -> Summary:
    """Return the median of repetitions, figure by figure; the rows are added up."""
    told = [asdict(one) for one in summaries]
    figures = {name: round(median(one[name] for one in told), 3) for name in told[0] if name != "rows"}
    return Summary(rows=sum(one.rows for one in summaries), **figures)


def as_csv(table: Mapping[str, Mapping[str, float]]) -> str:
    """Lay out raw percentiles, a line for each measurement."""
    names = list(next(iter(table.values()), {}))
    lines = [",".join(["measurement", *names])]
    lines += [",".join([label, *(f"{row[name]:g}" for name in names)]) for label, row in table.items()]
    return "\n".join(lines) + "\n"
