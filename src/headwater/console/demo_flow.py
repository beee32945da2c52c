"""A flow over city sensors, to run, to read and to copy: `headwater demo` runs it.

Hundreds of sensors in seven cities report temperature, humidity, light, dust, air quality and sound. Readings that
cannot be true are mended where that is possible and put aside where it is not; the others are watched for sudden foul
air, sensor by sensor, and added up city by city.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

USUAL_READINGS = 10  # of a sensor, whose average is what we call usual
SPIKE = 4.0  # times the usual


def is_plausible(batch: pa.RecordBatch) -> pa.Array:
    """A reading is plausible if all of it is there and dust is not below zero."""
    complete = pc.and_(pc.is_valid(batch["temperature"]), pc.is_valid(batch["humidity"]))
    return pc.and_(complete, pc.fill_null(pc.greater_equal(batch["dust"], 0.0), False))


def repair(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out a dust reading that is broken; a reading without temperature or humidity cannot be mended."""
    for column in ("temperature", "humidity"):
        if batch[column].null_count:
            sensor = batch["sensor"].filter(pc.is_null(batch[column]))[0]
            raise ValueError(f"sensor {sensor} took no {column}")
    no_dust = pa.nulls(batch.num_rows, pa.float64())
    return batch.set_column(batch.schema.get_field_index("dust"), "dust", no_dust)


def add_heat_index(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add how warm it feels: Steadman's simple formula, in degrees Celsius."""
    celsius = batch["temperature"].to_numpy(zero_copy_only=False)
    humidity = batch["humidity"].to_numpy(zero_copy_only=False)
    fahrenheit = celsius * 9 / 5 + 32
    feels = 0.5 * (fahrenheit + 61 + (fahrenheit - 68) * 1.2 + humidity * 0.094)
    return batch.append_column("feels_like", pa.array(np.round((feels - 32) * 5 / 9, 1)))


def add_usual(batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Add the average of the sensor's last readings of air quality before each one."""
    air = batch["airquality_raw"].to_numpy(zero_copy_only=False)
    usual = np.full(len(air), np.nan)
    for sensor, rows in state.rows_of_keys():
        last = state.get(sensor, [])
        for row in rows:
            if len(last) == USUAL_READINGS:
                usual[row] = sum(last) / USUAL_READINGS
            last = [*last, float(air[row])][-USUAL_READINGS:]
        state.put(sensor, last)
    return batch.append_column("usual", pa.array(usual, from_pandas=True))


def add_up(batch: pa.RecordBatch, state: hw.KeyedState) -> list[hw.Row]:
    """Keep count, mean temperature and the highest dust of every city, and tell those that changed."""
    celsius = batch["temperature"].to_numpy(zero_copy_only=False)
    dust = np.nan_to_num(batch["dust"].to_numpy(zero_copy_only=False))
    told = []
    for city, rows in state.rows_of_keys():
        count, total, dustiest = state.get(city, [0, 0.0, 0.0])
        count, total = count + len(rows), total + float(celsius[rows].sum())
        dustiest = max(dustiest, float(dust[rows].max()))
        state.put(city, [count, total, dustiest])
        told.append({"city": city, "readings": count, "temperature": total / count, "dustiest": dustiest})
    return told


def city_flow(directory: Path, *, rate: float = 2_000, rows: int | None = None) -> hw.Flow:
    """Return the flow; its files go into the directory, the cities' latest figures stay in memory."""
    readings = hw.read.cities(sensors=500, rate=rate, rows=rows, name="readings")
    good, bad = readings.split(is_plausible, into=("good", "bad"), name="plausible")
    mended = bad.map(repair, name="repair", on_error="dead-letter")

    spikes = (
        good.map(add_heat_index, name="heat-index")
        .key_by("sensor")
        .stateful(add_usual, name="usual-air")
        .filter(hw.col("airquality_raw") > hw.col("usual") * SPIKE, name="spikes")
        .select("timestamp", "city", "sensor", "airquality_raw", "usual", "feels_like", name="alert")
    )
    cities = good.union(mended, name="usable").key_by("city").stateful(add_up, name="per-city", parallelism=2)

    return hw.flow(
        "cities",
        spikes.sink(hw.to.csv(directory / "alerts.csv"), name="alerts"),
        mended.errors.sink(hw.to.json(directory / "dead-letters.jsonl"), name="dead-letters"),
        cities.sink(hw.to.memory(limit=1_000), name="board"),
    )


flow = city_flow(Path())
