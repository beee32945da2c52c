"""Soil moisture in the manner of SoilSCAPE: one of the four applications of DART and AgileDART."""

from dataclasses import asdict, dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

from ..waves import waves
from .network import DEPTHS_CM, READING, SITES, SoilReadings

Floats = npt.NDArray[np.float64]

CHECKED: Final = pa.schema([*READING, ("water", pa.float64()), ("doubt", pa.string())])
HOUR: Final = pa.schema(
    [
        ("site", pa.string()),
        ("depth_cm", pa.int64()),
        ("start", pa.timestamp("us", "UTC")),
        ("readings", pa.int64()),
        ("water", pa.float64()),
        ("lowest", pa.float64()),
        ("highest", pa.float64()),
        ("temperature", pa.float64()),
    ]
)
DEPTH: Final = pa.schema([*HOUR, ("trend", pa.float64())])
PROFILE: Final = pa.schema(
    [
        ("site", pa.string()),
        ("start", pa.timestamp("us", "UTC")),
        *((f"cm_{depth}", pa.float64()) for depth in DEPTHS_CM),
    ]
)
ADVICE: Final = pa.schema(
    [
        ("site", pa.string()),
        ("start", pa.timestamp("us", "UTC")),
        ("available", pa.float64()),
        ("deficit_mm", pa.float64()),
        ("advice", pa.string()),
    ]
)

WATER_MAX: Final = 0.6  # of a cubic metre of soil; no mineral soil holds more
BATTERY_MIN_V: Final = 3.3  # below it the sensor is not excited as it should be
LAYERS_MM: Final = np.array([125.0, 225.0, 300.0])  # what the sensors at 5, 20 and 50 cm stand for
TREND_HOURS: Final = 24
TREND_HOURS_MIN: Final = 6
HOUR_US: Final = 3_600_000_000

SITE_TABLE: Final = pa.Table.from_pylist([asdict(site) for site in SITES]).drop_columns(["nodes"])
WATER, RAW, EQUAL = 0, 1, 2  # what is kept of a sensor: its last plausible water, its last output, how often that came


@dataclass(frozen=True, kw_only=True)
class SoilMoisture(hw.App):
    """SoilSCAPE-style soil moisture: checked readings, hourly means and trends by depth, and when to irrigate."""

    name: ClassVar[str] = "soil.moisture"

    scale: int = 1  # nodes at each site, times those of SoilSCAPE
    delay: str = "20 minutes"  # how much later than others a reading may come
    jump: float = 0.1  # a change of water from one reading to the next that is doubted
    stuck_after: int = 36  # equal readings in a row, of 20 minutes each, until they are doubted
    allowed_depletion: float = 0.5  # of the water that plants can take up, until it is time to irrigate
    refilled: float = 0.8  # of it, when irrigation can end
    parallelism: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse a network without nodes."""
        if self.scale < 1:
            raise hw.FlowError(f"scale={self.scale} leaves no nodes; take 1 or more")

    @property
    def schema(self) -> pa.Schema:
        """What one sensor says."""
        return READING

    def made(self) -> SoilReadings:
        """Return a generator of readings."""
        return SoilReadings(self.scale, self.seed)

    def build(self, rows: hw.Stream) -> dict[str, hw.Stream]:
        """Calibrate and check the readings, average them by site and depth, and look at each site as a whole."""
        checked = (
            rows.with_watermark("timestamp", self.delay, name="event-time")
            .enrich(hw.table(SITE_TABLE), "site", how="inner", columns=["slope", "offset"], name="calibration")
            .map(calibrated, name="calibrate")
            .key_by("site", "node", "depth_cm")
            .stateful(self.checked, schema=CHECKED, name="check", parallelism=self.parallelism)
        )
        doubted, good = checked.split(is_doubted, into=("doubted", "good"), name="doubt")
        hours = (
            good.key_by("site", "depth_cm")
            .window(F.window("timestamp", "1 hour"))
            .agg(
                F.count().alias("readings"),
                F.avg("water").alias("water"),
                F.min("water").alias("lowest"),
                F.max("water").alias("highest"),
                F.avg("temperature").alias("temperature"),
                name="hours",
                parallelism=self.parallelism,
            )
            .select("site", "depth_cm", "window.start", *HOUR.names[3:], name="hour")
        )
        depths = hours.key_by("site", "depth_cm").stateful(
            with_trend, schema=DEPTH, name="trend", parallelism=self.parallelism
        )
        profiles = (
            hours.map(side_by_side, schema=PROFILE, name="by-depth")
            .key_by("site")
            .window(F.window("start", "1 hour"))
            .agg(*(F.max(name).alias(name) for name in PROFILE.names[2:]), name="profile", parallelism=self.parallelism)
            .select("site", "window.start", *PROFILE.names[2:], name="site-hour")
        )
        advice = (
            profiles.enrich(hw.table(SITE_TABLE), "site", how="inner", name="soil")
            .key_by("site")
            .stateful(self.advice, schema=ADVICE, name="irrigation", parallelism=self.parallelism)
        )
        return {"depths": depths, "irrigation": advice, "doubted": doubted}

    def checked(self, readings: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Say of every reading why it is doubted, or null; a jump is doubted once, and believed if it stays."""
        codes = state.codes
        raw, water = readings["raw_mv"].to_numpy(zero_copy_only=False), readings["water"].to_numpy(zero_copy_only=False)
        possible = (water >= 0) & (water <= WATER_MAX)  # a missing one is not
        jumped, equal = np.zeros(len(raw), bool), np.zeros(len(raw))
        kept = state.arrays(3, default=(np.nan, np.nan, 0.0))
        for rows in waves(codes):
            of_sensor = kept[codes[rows]]
            jumped[rows] = np.abs(water[rows] - of_sensor[:, WATER]) > self.jump
            equal[rows] = np.where(raw[rows] == of_sensor[:, RAW], of_sensor[:, EQUAL] + 1, 1)
            last_water = np.where(possible[rows], water[rows], of_sensor[:, WATER])
            now = np.column_stack((last_water, raw[rows], equal[rows]))
            kept[codes[rows]] = np.where(np.isnan(raw[rows])[:, None], of_sensor, now)
        state.put_arrays(kept)
        low_battery = readings["battery_v"].to_numpy(zero_copy_only=False) < BATTERY_MIN_V
        doubt = np.select(
            [np.isnan(raw), water < 0, water > WATER_MAX, low_battery, jumped, equal >= self.stuck_after],
            ["missing", "low", "high", "battery", "jump", "stuck"],
            default="",
        )
        return pa.record_batch([*readings.columns, pc.if_else(doubt != "", pa.array(doubt), None)], schema=CHECKED)

    def advice(self, profiles: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Say when a site has dried so far that it is to be irrigated, and when it has enough again."""
        profiles, codes = _in_time(profiles, state)
        water = np.column_stack([profiles[name].to_numpy(zero_copy_only=False) for name in PROFILE.names[2:]])
        dry, full = profiles["wilting_point"].to_numpy(), profiles["field_capacity"].to_numpy()
        available, deficit = np.empty(len(water)), np.empty(len(water))
        advice = np.full(len(water), "", object)
        kept = state.arrays(len(DEPTHS_CM) + 1, default=(*[np.nan] * len(DEPTHS_CM), 0.0))
        for rows in waves(codes):
            sites = codes[rows]
            last = np.where(np.isnan(water[rows]), kept[sites, :-1], water[rows])  # a depth that is silent is as before
            lacking = (full[rows, None] - last) * LAYERS_MM
            deficit[rows] = np.maximum(lacking, 0).sum(axis=1)
            available[rows] = 1 - lacking.sum(axis=1) / ((full - dry)[rows] * LAYERS_MM.sum())
            irrigating = kept[sites, -1] > 0
            starts = ~irrigating & (available[rows] < 1 - self.allowed_depletion)
            ends = irrigating & (available[rows] >= self.refilled)
            advice[rows] = np.where(starts, "irrigate", np.where(ends, "enough", ""))
            kept[sites] = np.column_stack((last, starts | (irrigating & ~ends)))
        state.put_arrays(kept)
        columns = [profiles["site"], profiles["start"], *map(pa.array, (available, deficit, advice))]
        return pa.record_batch(columns, schema=ADVICE).filter(pa.array(advice != ""))


def calibrated(readings: pa.RecordBatch) -> pa.RecordBatch:
    """Turn what a sensor puts out into water by volume, as it was calibrated in the soil of its site."""
    water = pc.add(pc.multiply(readings["raw_mv"], readings["slope"]), readings["offset"])
    return readings.select(READING.names).append_column("water", water)


def is_doubted(readings: pa.RecordBatch) -> pa.Array:
    """Say which readings are doubted."""
    return pc.is_valid(readings["doubt"])


def with_trend(hours: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Add the trend of the last 24 hours, as water a day: the slope of a line through their means."""
    hours, codes = _in_time(hours, state)
    at_hour = hours["start"].cast(pa.int64()).to_numpy() / HOUR_US
    water = hours["water"].to_numpy()
    trends = np.empty(len(water))
    kept = state.arrays((TREND_HOURS, 2), default=np.nan)
    for rows in waves(codes):
        newest = np.stack((at_hour[rows], water[rows]), axis=1)[:, None]
        kept[codes[rows]] = points = np.concatenate((kept[codes[rows], 1:], newest), axis=1)
        trends[rows] = slopes(points[..., 0] - at_hour[rows, None], points[..., 1]) * 24
    state.put_arrays(kept)
    return pa.record_batch([*hours.columns, pa.array(trends, from_pandas=True)], schema=DEPTH)


def slopes(ages: Floats, values: Floats) -> Floats:
    """Return the slope of a line through each row's points that are young enough; NaN where these are too few."""
    used = ages > -TREND_HOURS  # NaN is not
    count = used.sum(axis=1)
    x, y = np.where(used, ages, 0.0), np.where(used, values, 0.0)
    enough = count >= TREND_HOURS_MIN
    spread = count * (x * x).sum(axis=1) - x.sum(axis=1) ** 2
    rise = count * (x * y).sum(axis=1) - x.sum(axis=1) * y.sum(axis=1)
    found: Floats = np.divide(rise, spread, out=np.full(len(rise), np.nan), where=enough)
    return found


def side_by_side(hours: pa.RecordBatch) -> pa.RecordBatch:
    """Put the water of each depth into a column of its own, among nulls for the others."""
    places = (pc.if_else(pc.equal(hours["depth_cm"], depth), hours["water"], None) for depth in DEPTHS_CM)
    return pa.record_batch([hours["site"], hours["start"], *places], schema=PROFILE)


def _in_time(rows: pa.RecordBatch, state: hw.KeyedState) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
    """Return hours in order of time, with the codes of their keys; a micro-batch of the twin has them in any order."""
    order = pc.sort_indices(rows["start"])
    return rows.take(order), state.codes[order.to_numpy()]
