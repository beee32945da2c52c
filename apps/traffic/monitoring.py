"""Traffic Monitoring (TM), the running example of the Falcon paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

import headwater as hw

from ..chance import whole

READING: Final = pa.schema([("vehicle", pa.string()), ("speed", pa.float64())])
STATISTICS: Final = pa.schema([*READING, ("average", pa.float64()), ("count", pa.int64())])

TRACES: Final = Path("beijing_taxi") / "taxi-traces.csv"
TRACE: Final = pa.schema(
    [
        ("rowid", pa.int64()),
        ("vehicle", pa.string()),
        ("at", pa.timestamp("s")),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("speed", pa.float64()),
        ("bearing", pa.float64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class TrafficMonitoring(hw.App):
    """Falcon's TM: alerts about vehicles whose average speed is above the limit."""

    name: ClassVar[str] = "traffic.monitoring"

    speed_limit: float = 50.0
    vehicles: int = 10
    parallelism: int = 1  # instances that share the vehicles
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse a street without vehicles."""
        if self.vehicles < 1:
            raise ValueError(f"vehicles={self.vehicles} has to be at least 1")

    @property
    def schema(self) -> pa.Schema:
        """A vehicle and its current speed."""
        return READING

    def made(self) -> "Vehicles":
        """Return a generator of readings."""
        return Vehicles(self.vehicles, self.seed)

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the traces of Beijing's taxis."""
        if not (data / TRACES).is_file():
            raise hw.ConfigError(
                f"there is no file {data / TRACES}; {self.name} reads traces of taxis there (docs/data.md)"
            )
        traces = hw.read.csv(
            data / TRACES, schema=TRACE, header=False, rate=rate, loop=loop, bad_lines="skip", name="input"
        )
        return traces.select(*READING.names, name="reading")

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Keep the average speed of every vehicle, and tell which are too fast."""
        return (
            rows.filter(hw.col("vehicle").is_valid() & hw.col("speed").is_valid(), name="complete")
            .key_by("vehicle")
            .stateful(average_speeds, schema=STATISTICS, name="moving-average", parallelism=self.parallelism)
            .filter(hw.col("average") > self.speed_limit, name="trigger")
        )


def average_speeds(readings: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Add to every reading the average of its vehicle so far; kept are the sum of the speeds, and their number.

    A vehicle's speeds are added one after the other, so the averages are the same however the rows are cut in batches.
    """
    speeds = readings["speed"].to_numpy()
    averages, counts = np.empty(len(speeds)), np.empty(len(speeds), np.int64)
    kept = []
    for (_, rows), (total, count) in zip(state.rows_of_keys(), state.values(default=(0.0, 0)), strict=True):
        totals = np.add.accumulate(np.concatenate(([total], speeds[rows])))[1:]
        counts[rows] = numbers = np.arange(count + 1, count + 1 + len(rows))
        averages[rows] = totals / numbers
        kept.append((float(totals[-1]), int(numbers[-1])))
    state.put_values(kept)
    return pa.record_batch([*readings.columns, pa.array(averages), pa.array(counts)], schema=STATISTICS)


@dataclass(frozen=True)
class Vehicles:
    """Readings as Falcon's producer makes them: vehicles `A0`, `A1`, ... in turn, with speeds from 20 to 80."""

    vehicles: int = 10
    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        numbers = np.arange(first, first + count)
        names = pa.array([f"A{vehicle}" for vehicle in range(self.vehicles)])
        speeds = 20.0 + whole(numbers, 61, self.seed)
        return pa.record_batch([names.take(pa.array(numbers % self.vehicles)), pa.array(speeds)], schema=READING)
