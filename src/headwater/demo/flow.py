"""Four apps over the sensors of seven cities, to run, to read and to copy: `headwater demo` runs them on a cluster.

Hundreds of sensors report temperature, humidity, light, dust, air quality and sound. `air` watches what is usual at
every sensor, `heat` tells where it feels hot, `cities` adds up every five minutes of every city, and `noise` finds
what is loud.

    headwater submit demo_flow.py:air --to NODE --insecure
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

# What the demo fills in.
SENSORS = 200
RATE = 300.0  # readings a second, of each app
ROWS: int | None = None  # None: readings never end
LATE_ROWS: int | None = None  # of the app that comes later
PLACE = "."  # where the results go

USUAL_READINGS = 10  # of a sensor, whose average is what we call usual
HOT = 33.0  # degrees Celsius, as it feels
LOUD = 1_700.0


def is_plausible(batch: pa.RecordBatch) -> pa.Array:
    """A reading is plausible if all of it is there and dust is not below zero."""
    complete = pc.and_(pc.is_valid(batch["temperature"]), pc.is_valid(batch["humidity"]))
    return pc.and_(complete, pc.fill_null(pc.greater_equal(batch["dust"], 0.0), False))


def with_usual(row: hw.Row, kept: tuple[int, list[float]] | None) -> tuple[hw.Row, tuple[int, list[float]]]:
    """Add how many readings of its sensor came before, and what the last ten were on average."""
    seen, last = kept or (0, [])
    usual = sum(last) / len(last) if last else None
    told = {"sensor": row["sensor"], "at": row["timestamp"], "seen": seen + 1, "air": row["airquality_raw"]}
    return {**told, "usual": usual}, (seen + 1, [*last, row["airquality_raw"]][-USUAL_READINGS:])


def with_heat_index(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add how warm it feels: Steadman's simple formula, in degrees Celsius."""
    fahrenheit = pc.add(pc.multiply(batch["temperature"], 1.8), 32.0)
    above = pc.multiply(pc.subtract(fahrenheit, 68.0), 1.2)
    damp = pc.multiply(batch["humidity"], 0.094)
    feels = pc.multiply(pc.add(pc.add(fahrenheit, 61.0), pc.add(above, damp)), 0.5)
    return batch.append_column("feels_like", pc.round(pc.divide(pc.subtract(feels, 32.0), 1.8), 1))


def readings(rows: int | None = ROWS) -> hw.Stream:
    """The sensors, as a source."""
    return hw.read.cities(sensors=SENSORS, rate=RATE, rows=rows, name="readings")


def to_file(name: str) -> Any:
    """A file of lines for the results of an app."""
    return hw.to.json(f"{PLACE}/{name}.jsonl", mode="overwrite")


watched = readings().filter(is_plausible, name="plausible").key_by("sensor")
air = hw.flow("air", watched.stateful(with_usual, name="usual", parallelism=2).sink(to_file("air"), name="out"))

felt = readings().map(with_heat_index, name="heat-index").filter(hw.col("feels_like") > HOT, name="hot")
heat = hw.flow("heat", felt.select("timestamp", "city", "sensor", "feels_like").sink(to_file("heat"), name="out"))

by_city = readings().with_watermark("timestamp", "1 minute").key_by("city")
added_up = by_city.window(F.window("timestamp", "5 minutes")).agg(
    F.count(), F.avg("temperature").alias("mean"), name="added-up", parallelism=2
)
cities = hw.flow("cities", added_up.sink(to_file("cities"), name="out"))

loudest = readings(LATE_ROWS).filter(hw.col("sound") > LOUD, name="loud").select("timestamp", "city", "sensor", "sound")
noise = hw.flow("noise", loudest.sink(to_file("noise"), name="out"))
