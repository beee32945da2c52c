"""What the demo's apps must have written, computed from the readings themselves: each counts exactly once.

The readings are a pure function of their number, so the input is known without having been recorded.
"""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from headwater.connectors.cities import CityRows
from headwater.demo.flow import HOT, LOUD, is_plausible, with_heat_index

WINDOW_S: Final = 300

Row = dict[str, Any]
Told = list[str]  # what is wrong, in words


def made(sensors: int, rows: int) -> pa.RecordBatch:
    """Return the input."""
    return CityRows(sensors)(0, rows)


def written(file: Path) -> list[Row]:
    """Return the output."""
    return [orjson.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


def check_air(readings: pa.RecordBatch, out: list[Row]) -> Told:
    """Check that every plausible reading of a sensor is there once, in order, and that the sensor's count goes on."""
    expected: dict[str, list[str]] = defaultdict(list)
    for row in readings.filter(is_plausible(readings)).select(["sensor", "timestamp"]).to_pylist():
        expected[row["sensor"]].append(_instant(row["timestamp"]))
    found: dict[str, list[Row]] = defaultdict(list)
    for row in out:
        found[row["sensor"]].append(row)
    wrong = []
    for sensor in sorted({*expected, *found}):
        if [_instant(row["at"]) for row in found[sensor]] != expected[sensor]:
            wrong.append(f"sensor {sensor}: {len(found[sensor])} readings came out, {len(expected[sensor])} went in")
        elif [row["seen"] for row in found[sensor]] != list(range(1, len(found[sensor]) + 1)):
            wrong.append(f"sensor {sensor} did not count on")
    return wrong


def check_heat(readings: pa.RecordBatch, out: list[Row]) -> Told:
    """Check that every hot reading is there once."""
    hot = with_heat_index(readings).to_pylist()
    return _same(((row["sensor"], row["timestamp"]) for row in hot if _above(row["feels_like"], HOT)), out)


def check_noise(readings: pa.RecordBatch, out: list[Row]) -> Told:
    """Check that every loud reading is there once."""
    return _same(((row["sensor"], row["timestamp"]) for row in readings.to_pylist() if _above(row["sound"], LOUD)), out)


def _above(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


def _same(expected: Iterable[tuple[str, Any]], out: list[Row]) -> Told:
    wanted = Counter((sensor, _instant(at)) for sensor, at in expected)
    found = Counter((row["sensor"], _instant(row["timestamp"])) for row in out)
    lost, doubled = wanted - found, found - wanted
    told = [f"{lost.total()} rows are missing, such as {min(lost)}"] if lost else []
    return [*told, f"{doubled.total()} rows are too many, such as {min(doubled)}"] if doubled else told


def check_cities(readings: pa.RecordBatch, out: list[Row]) -> Told:
    """Check that every window of every city is there once, with the number of its readings."""
    wanted: Counter[tuple[str, float]] = Counter()
    for row in readings.select(["city", "timestamp"]).to_pylist():
        at = row["timestamp"].timestamp()
        wanted[row["city"], at - at % WINDOW_S] += 1
    found: dict[tuple[str, float], list[int]] = defaultdict(list)
    for row in out:
        start = dt.datetime.fromisoformat(row["window"]["start"]).timestamp()
        found[row["city"], start].append(row["count"])
    return [
        f"{city}, five minutes from {start:.0f}: counted {found[city, start]}, there were {wanted[city, start]}"
        for city, start in sorted({*wanted, *found})
        if found[city, start] != [wanted[city, start]]
    ]


def _instant(written: str | dt.datetime) -> str:
    at = dt.datetime.fromisoformat(written) if isinstance(written, str) else written
    return at.astimezone(dt.UTC).isoformat()


CHECKS: Final[dict[str, Callable[[pa.RecordBatch, list[Row]], Told]]] = {
    "air": check_air,
    "heat": check_heat,
    "cities": check_cities,
    "noise": check_noise,
}
