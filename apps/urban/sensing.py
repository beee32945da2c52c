"""Urban sensing: one of the four applications of DART and AgileDART."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

from ..waves import waves
from .readings import READING, MadeReadings, SensorMeans

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Observable:
    """What a channel carries: a column of the readings, and between what values a reading can be true."""

    column: str
    low: float
    high: float


OBSERVABLES: Final[Mapping[str, Observable]] = {
    "pollution": Observable("airquality_raw", 0, 10_000),
    "dust": Observable("dust", 0, 100_000),
    "light": Observable("light", 0, 200_000),
    "sound": Observable("sound", 0, 10_000),
    "temperature": Observable("temperature", -40, 60),
    "humidity": Observable("humidity", 0, 100),
}
NAMES: Final = tuple(OBSERVABLES)
MEANS: Final = [(name, pa.float64()) for name in NAMES]
CHANNEL: Final = pa.schema([("city", pa.string()), ("last_instant", pa.timestamp("us", "UTC")), *MEANS])
PICTURE: Final = pa.schema(
    [
        ("city", pa.string()),
        ("until", pa.timestamp("us", "UTC")),
        *MEANS,
        *((f"{name}_change", pa.float64()) for name in NAMES),
    ]
)
ALERT: Final = pa.schema(
    [
        ("city", pa.string()),
        ("until", pa.timestamp("us", "UTC")),
        ("observable", pa.string()),
        ("mean", pa.float64()),
        ("change", pa.float64()),
    ]
)
COUNT, USUAL, VARIANCE = 0, 1, 2  # what is kept of each observable of a city


@dataclass(frozen=True, kw_only=True)
class UrbanSensing(hw.App):
    """AgileDART's urban sensing: six observables of seven cities, each in a channel of its own, and their changes."""

    name: ClassVar[str] = "urban.sensing"

    sensors: int = 90  # as many as there were; the papers scale them to 90,000
    observables: str = ",".join(NAMES)
    window: str = "5 minutes"
    slide: str = "1 minute"
    delay: str = "10 seconds"  # how much later than others a reading may come
    memory: float = 0.05  # how much of what is usual a new mean makes up
    warm_up: int = 10  # means before anything is called usual
    alert_above: float = 4.0  # deviations from what is usual
    parallelism: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what no sensor observes."""
        unknown = [name for name in self.channels if name not in OBSERVABLES]
        if unknown:
            raise hw.FlowError(f"{unknown[0]!r} is not observed; observables are {', '.join(NAMES)}")
        if self.sensors < 1:
            raise hw.FlowError(f"there are no readings of {self.sensors} sensors; take 1 or more")

    @property
    def channels(self) -> tuple[str, ...]:
        """The observables that are followed."""
        return tuple(name.strip() for name in self.observables.split(","))

    @property
    def schema(self) -> pa.Schema:
        """A reading of all that a sensor observes."""
        return READING

    def made(self) -> MadeReadings:
        """Return a generator of readings."""
        return MadeReadings(self.sensors, self.seed)

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the hourly means of 2015; windows of hours suit them better."""
        return hw.read.iterable(SensorMeans(data, loop), schema=self.schema, rate=rate, name="input")

    def build(self, rows: hw.Stream) -> dict[str, hw.Stream]:
        """Part the readings into channels, average each by city and time, and bring the channels together again."""
        readings = rows.with_watermark("timestamp", self.delay, name="event-time")
        first, *others = (self.channel(readings, name) for name in self.channels)
        channels = first.union(*others, name="channels") if others else first
        together = channels.key_by("city").window(F.window("last_instant", self.slide))
        pictures = (
            together.agg(*(F.max(name).alias(name) for name in NAMES), name="cities", parallelism=self.parallelism)
            .select("city", *NAMES, until="window.end", name="picture")
            .key_by("city")
            .stateful(self.with_changes, schema=PICTURE, name="changes", parallelism=self.parallelism)
        )
        return {"cities": pictures, "alerts": pictures.flat_map(self.alerts, schema=ALERT, name="alerts")}

    def channel(self, readings: hw.Stream, name: str) -> hw.Stream:
        """Average one observable by city, in a row that has room for the others."""
        observable = OBSERVABLES[name]
        value = hw.col(observable.column)
        return (
            readings.filter((value >= observable.low) & (value <= observable.high), name=f"valid-{name}")
            .key_by("city")
            .window(F.window("timestamp", self.window, self.slide))
            .agg(F.avg(observable.column).alias("mean"), name=f"mean-{name}", parallelism=self.parallelism)
            .map(Placed(name), schema=CHANNEL, name=f"place-{name}")
        )

    def with_changes(self, cities: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Add how many deviations each mean is from what is usual: a mean and a variance that slowly forget."""
        order = pc.sort_indices(cities["until"])  # a micro-batch of the twin has windows in any order
        cities, codes = cities.take(order), state.codes[order.to_numpy()]
        means = np.column_stack([cities[name].to_numpy(zero_copy_only=False) for name in NAMES])
        changes = np.empty_like(means)
        kept = state.arrays((3, len(NAMES)))
        for rows in waves(codes):
            keys = codes[rows]
            changes[rows], kept[keys] = self.compared(means[rows], kept[keys])
        state.put_arrays(kept)
        added = (pa.array(changes[:, place], from_pandas=True) for place in range(len(NAMES)))  # NaN is null
        told = cities.select(PICTURE.names[: -len(NAMES)])
        return pa.record_batch([*told.columns, *added], schema=PICTURE)

    def compared(self, means: Floats, kept: Floats) -> tuple[Floats, Floats]:
        """Return the changes against what is usual, and what is usual from now on; a missing mean changes nothing."""
        count, usual, variance = kept[:, COUNT], kept[:, USUAL], kept[:, VARIANCE]
        off = np.where(count > 0, means - usual, 0.0)
        settled = (count >= self.warm_up) & (variance > 0)
        change = np.divide(off, np.sqrt(variance), out=np.full_like(off, np.nan), where=settled)
        new_usual = np.where(count > 0, usual + self.memory * off, means)
        new_variance = (1 - self.memory) * (variance + self.memory * off**2)
        known = ~np.isnan(means)[:, None]
        return change, np.where(known, np.stack((count + 1, new_usual, new_variance), axis=1), kept)

    def alerts(self, cities: pa.RecordBatch) -> pa.Table:
        """Return a row for every observable of a city that is far from what is usual."""
        found = []
        for name in NAMES:
            far = cities.filter(pc.greater(pc.abs(cities[f"{name}_change"]), self.alert_above))
            columns = [far["city"], far["until"], pa.repeat(name, len(far)), far[name], far[f"{name}_change"]]
            found.append(pa.record_batch(columns, schema=ALERT))
        return pa.Table.from_batches(found)


@dataclass(frozen=True)
class Placed:
    """Puts the mean of one channel into its column, among nulls for the others."""

    name: str

    def __call__(self, means: pa.RecordBatch) -> pa.RecordBatch:
        """Give each mean the last instant of its window as its time: the end belongs to the next one already."""
        end = pc.struct_field(means["window"], "end")
        last_instant = pc.subtract(end.cast(pa.timestamp("us", "UTC")), pa.scalar(1, pa.duration("us")))
        nothing = pa.nulls(len(means), pa.float64())
        values = (means["mean"] if name == self.name else nothing for name in NAMES)
        return pa.record_batch([means["city"], last_instant, *values], schema=CHANNEL)
