"""Taxi demand: one of the four applications of DART and AgileDART, after Moreira-Matias et al. (2013)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

from ..waves import waves
from .pickups import PICKUP, PickUps, RealPickUps

Floats = npt.NDArray[np.float64]

WEST: Final = -74.12  # a corner of the map; outside of it there is no demand to foresee
SOUTH: Final = 40.55
ZONE_EAST: Final = 0.024  # degrees: zones of about 2 by 2 km
ZONE_NORTH: Final = 0.018
SIDE: Final = 24  # zones in each direction
WEEK: Final = timedelta(weeks=1)
PERIOD_MINUTES_MIN: Final = 5  # of a zone 2,016 periods are kept then, which is 97 KB
GAP_PERIODS_MAX: Final = 48  # without any pick-up that are still taken for periods without demand
LAGS: Final = 3
PREDICTORS: Final = ("poisson", "weighted", "regressed")

ZONED: Final = pa.schema([("city", pa.string()), ("zone", pa.string()), ("at", pa.timestamp("us", "UTC"))])
SERIES: Final = pa.schema([("zone", pa.string()), ("start", pa.timestamp("us", "UTC")), ("demand", pa.float64())])
HISTORY: Final = pa.schema(
    [
        *SERIES,
        ("poisson", pa.float64()),
        ("weighted", pa.float64()),
        *((f"lag_{lag}", pa.float64()) for lag in range(1, LAGS + 1)),
    ]
)
FORECAST: Final = pa.schema(
    [*SERIES, *((name, pa.float64()) for name in PREDICTORS), ("forecast", pa.float64()), ("error", pa.float64())]
)


@dataclass(frozen=True, kw_only=True)
class TaxiDemand(hw.App):
    """Taxi demand: pick-ups of the next half hour in every zone, foreseen by three predictors that are weighed anew."""

    name: ClassVar[str] = "taxi.demand"

    period_minutes: int = 30
    delay: str = "10 seconds"  # how much later than others a pick-up may be told
    weeks: int = 4  # that the weighted average looks back
    smoothing: float = 0.4  # how much more a week counts than the one before it
    judged_periods: int = 8  # by whose errors the predictors are weighed
    per_hour: int = 10_000  # made pick-ups
    parallelism: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse periods of which a week is not a multiple: each is compared with the same one of other weeks."""
        if self.period_minutes < PERIOD_MINUTES_MIN or WEEK % timedelta(minutes=self.period_minutes):
            raise hw.FlowError(
                f"periods of {self.period_minutes} minutes do not work: "
                f"take {PERIOD_MINUTES_MIN} or more, of which a week is a multiple"
            )
        if min(self.weeks, self.judged_periods) < 1:
            raise hw.FlowError("weeks and judged_periods are 1 or more")

    @property
    def schema(self) -> pa.Schema:
        """A pick-up."""
        return PICKUP

    @property
    def period_us(self) -> int:
        """How long a period is."""
        return self.period_minutes * 60_000_000

    def made(self) -> PickUps:
        """Return a generator of pick-ups."""
        return PickUps(self.per_hour, self.seed)

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the pick-ups of the first hour of 2013; periods of 5 minutes suit them better."""
        return hw.read.iterable(RealPickUps(data, loop), schema=PICKUP, rate=rate, name="input")

    def build(self, rows: hw.Stream) -> dict[str, hw.Stream]:
        """Count pick-ups by zone and period, predict the next period in three ways, and weigh these by their errors."""
        period = f"{self.period_minutes} minutes"
        counts = (
            rows.flat_map(zoned, schema=ZONED, name="zones")
            .with_watermark("at", self.delay, name="event-time")
            .key_by("city", "zone")
            .window(F.window("at", period))
            .agg(F.count().alias("demand"), name="count", parallelism=self.parallelism)
            .select("city", "zone", "window.start", "demand", name="period")
        )
        series = (
            counts.key_by("city")
            .window(F.window("start", period))
            .agg(F.collect_list("zone").alias("zones"), F.collect_list("demand").alias("demands"), name="city")
            .key_by("city")
            .stateful(self.series, schema=SERIES, name="series")
        )
        predicted = (
            series.key_by("zone")
            .stateful(self.history, schema=HISTORY, name="history", parallelism=self.parallelism)
            .key_by("zone")
            .learn(
                autoregression,
                [f"lag_{lag}" for lag in range(1, LAGS + 1)],
                target="demand",
                output="regressed",
                name="autoregression",
                parallelism=self.parallelism,
            )
            .key_by("zone")
            .stateful(self.ensemble, schema=FORECAST, name="ensemble", parallelism=self.parallelism)
        )
        known, asked = predicted.split(is_known, into=("known", "asked"), name="known")
        return {
            "forecasts": asked.select(*FORECAST.names[:2], *FORECAST.names[3:7], name="forecast"),
            "accuracy": known,
        }

    def series(self, periods: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Return the demand of every zone that is known, 0 where nobody was picked up; and ask for the next period.

        What is asked for is a row without demand. Zones that were never heard of are not asked about.
        """
        made = [
            rows
            for city, positions in state.rows_of_keys()
            for rows in self._of_city(city, periods.take(pa.array(positions)).sort_by("window"), state)
        ]
        return pa.Table.from_batches(made, schema=SERIES).combine_chunks()

    def _of_city(self, city: str, periods: pa.RecordBatch, state: hw.KeyedState) -> Iterator[pa.RecordBatch]:
        last, zones = state.get(city, (None, []))
        for period in periods.to_pylist():
            start = _us(period["window"]["start"])
            counts = dict(zip(period["zones"], period["demands"], strict=True))
            empty = () if last is None else range(last + self.period_us, start, self.period_us)
            for missed in empty if len(empty) <= GAP_PERIODS_MAX else ():
                yield _series(zones, missed, [0] * len(zones))
            zones = sorted({*zones, *counts})
            yield _series(zones, start, [counts.get(zone, 0) for zone in zones])
            yield _series(zones, start + self.period_us, [None] * len(zones))
            last = start
        state.put(city, (last, zones))

    def history(self, series: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Add what earlier weeks had in the same period, as a mean and as one that forgets, and the periods before.

        Kept of a zone, for each period of a week: the sum and the number of all its demands and the latest few; and of
        the last few periods their demands.
        """
        slots = WEEK // timedelta(minutes=self.period_minutes)
        demand = series["demand"].to_numpy(zero_copy_only=False)
        slot = series["start"].cast(pa.int64()).to_numpy() // self.period_us % slots
        kept = state.arrays((slots + 1, max(2 + self.weeks, LAGS)), default=np.nan)
        poisson, weighted, lags = np.empty(len(demand)), np.empty(len(demand)), np.empty((len(demand), LAGS))
        for rows in waves(state.codes):
            zone = state.codes[rows]
            same, before = kept[zone, slot[rows]], kept[zone, -1, :LAGS]
            total, count, latest = np.nan_to_num(same[:, 0]), np.nan_to_num(same[:, 1]), same[:, 2 : 2 + self.weeks]
            poisson[rows] = np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0)
            weighted[rows] = self.forgetting_mean(latest)
            lags[rows] = np.nan_to_num(before)
            new = demand[rows]
            known = ~np.isnan(new)
            now = np.column_stack((total + new, count + 1, new, latest[:, :-1]))
            kept[zone[known], slot[rows][known], : 2 + self.weeks] = now[known]
            kept[zone[known], -1, :LAGS] = np.column_stack((new, before[:, :-1]))[known]
        state.put_arrays(kept)
        added = [pa.array(values, from_pandas=True) for values in (poisson, weighted, *lags.T)]
        return pa.record_batch([*series.columns, *added], schema=HISTORY)

    def forgetting_mean(self, latest: Floats) -> Floats:
        """Return the mean of the latest weeks, each with 0.6 times the weight of the week after it; NaN if none."""
        weights = np.where(np.isnan(latest), 0.0, (1 - self.smoothing) ** np.arange(self.weeks))
        weight = weights.sum(axis=1)
        summed = (weights * np.nan_to_num(latest)).sum(axis=1)
        mean: Floats = np.divide(summed, weight, out=np.full(len(latest), np.nan), where=weight > 0)
        return mean

    def ensemble(self, rows: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Add the predictors' mean, weighed by how small their errors were lately, and its error once that is known.

        The error is the symmetric one of the paper: 0 if it is right, towards 1 the further it is off.
        """
        demand = rows["demand"].to_numpy(zero_copy_only=False)
        predictions = np.column_stack([rows[name].to_numpy(zero_copy_only=False) for name in PREDICTORS])
        predictions = np.maximum(predictions, 0.0)  # NaN stays
        forecast, error = np.empty(len(demand)), np.empty(len(demand))
        kept = state.arrays((self.judged_periods, len(PREDICTORS)), default=np.nan)
        for wave in waves(state.codes):
            zone = state.codes[wave]
            forecast[wave] = weighed(predictions[wave], kept[zone])
            error[wave] = off(forecast[wave], demand[wave])
            known = ~np.isnan(demand[wave])
            errors = off(predictions[wave], demand[wave, None])
            kept[zone[known]] = np.concatenate((kept[zone][:, 1:], errors[:, None]), axis=1)[known]
        state.put_arrays(kept)
        added = [pa.array(values, from_pandas=True) for values in (*predictions.T, forecast, error)]
        return pa.record_batch([*rows.select(SERIES.names).columns, *added], schema=FORECAST)


def zoned(pickups: pa.RecordBatch) -> pa.RecordBatch:
    """Return in which zone each pick-up is; those outside of the map are dropped."""
    x = np.floor((pickups["longitude"].to_numpy(zero_copy_only=False) - WEST) / ZONE_EAST)
    y = np.floor((pickups["latitude"].to_numpy(zero_copy_only=False) - SOUTH) / ZONE_NORTH)
    inside = pa.array((x >= 0) & (x < SIDE) & (y >= 0) & (y < SIDE))  # NaN is not
    steps = (pa.array(step).filter(inside).cast(pa.int64()).cast(pa.string()) for step in (x, y))
    at = pickups["at"].filter(inside)
    zones = pc.binary_join_element_wise(*steps, ".")
    return pa.record_batch([pa.repeat("New York", len(at)), zones, at], schema=ZONED)


def autoregression() -> Any:
    """Make the model of a zone: the next demand as a sum of the last ones, learned as they come."""
    from river import linear_model

    return linear_model.BayesianLinearRegression()


def weighed(predictions: Floats, errors: Floats) -> Floats:
    """Return the mean of each row's predictions, with one less the mean of their latest errors as weights."""
    judged = ~np.isnan(errors)
    times = judged.sum(axis=1)
    mean_error = np.nan_to_num(errors).sum(axis=1) / np.maximum(times, 1)
    weights = np.where(np.isnan(predictions), 0.0, 1 - mean_error)  # one that was never judged counts in full
    found: Floats = (weights * np.nan_to_num(predictions)).sum(axis=1) / weights.sum(axis=1)
    return found


def off(predicted: Floats, demand: Floats) -> Floats:
    """Return the symmetric errors; the 1 keeps a single passenger from being everything."""
    errors: Floats = np.abs(predicted - demand) / (predicted + demand + 1)
    return errors


def is_known(rows: pa.RecordBatch) -> pa.Array:
    """Say of which rows the demand is known."""
    return pc.is_valid(rows["demand"])


def _series(zones: list[str], start_us: int, demands: list[int] | list[None]) -> pa.RecordBatch:
    start = pa.repeat(pa.scalar(start_us, pa.timestamp("us", "UTC")), len(zones))
    return pa.record_batch([pa.array(zones, pa.string()), start, pa.array(demands, pa.float64())], schema=SERIES)


def _us(instant: Any) -> int:
    return int(instant.timestamp()) * 1_000_000
