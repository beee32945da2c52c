"""What is measured: one stateless chain and one keyed average, written once and run by every engine.

The chain is a sensor gateway's first work: parse JSON, drop what a broken sensor says, convert, judge, keep four
columns. Rows carry the instant they were due at the source, which is where every latency starts.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.state import KeyedState

Batch: TypeAlias = pa.RecordBatch

SENSORS: Final = 20
BROKEN_EVERY: Final = 10  # one reading in so many is out of range, and the chain's filter drops it
BROKEN_CELSIUS: Final = -999.0
LAST_ROWS: Final = 10  # the keyed average is over so many rows of a sensor

READING: Final = pa.schema(
    [
        ("created_us", pa.int64()),
        ("sensor", pa.string()),
        ("celsius", pa.float64()),
        ("humidity", pa.float64()),
    ]
)
AVERAGED: Final = pa.schema(list(READING)[:3])
READINGS_PERIOD: Final = 200  # after so many rows sensor and reading are the same again
READINGS_MAX: Final = 10_000  # in one batch
LINES: Final = pa.schema([("line", pa.string())])
KEPT: Final = ("created_us", "sensor", "fahrenheit", "muggy")


def sensor_of(row: int) -> str:
    """Return the sensor that sends this row."""
    return f"sensor-{row % SENSORS:02d}"


def celsius_of(row: int) -> float:
    """Return what the sensor reads: a saw-tooth, and nonsense from time to time."""
    return BROKEN_CELSIUS if is_broken(row) else 15.0 + row * 7 % 200 / 10


def is_broken(row: int) -> bool:
    """Whether the chain's filter drops this row."""
    return row % BROKEN_EVERY == BROKEN_EVERY - 1


def json_line(row: int, created_us: int) -> str:
    """Return a reading as the gateway gets it."""
    return (
        f'{{"created_us":{created_us},"sensor":"{sensor_of(row)}",'
        f'"celsius":{celsius_of(row)},"humidity":{40 + row % 50}.5}}'
    )


def text_line(row: int, created_us: int) -> str:
    """Return a reading as plain text, for a source that knows lines only and a query that needs three columns."""
    return f"{created_us},{sensor_of(row)},{celsius_of(row)}"


def lines_batch(rows: range, created_us: Sequence[int]) -> Batch:
    """Return readings as a batch of JSON lines."""
    lines = [json_line(row, created) for row, created in zip(rows, created_us, strict=True)]
    return pa.record_batch([pa.array(lines, pa.string())], schema=LINES)


class Readings:
    """Readings as columns, for the keyed average; all but the instant is made beforehand, since it repeats."""

    def __init__(self) -> None:
        """Make the columns, long enough for a slice from anywhere in the first period."""
        rows = range(READINGS_PERIOD + READINGS_MAX)
        self._sensors = pa.array([sensor_of(row) for row in rows], pa.string())
        self._celsius = pa.array([celsius_of(row) for row in rows], pa.float64())

    def batch(self, rows: range, created_us: Sequence[int]) -> Batch:
        """Return these rows."""
        start = rows.start % READINGS_PERIOD
        columns = [
            pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(array("q", created_us))]),
            self._sensors.slice(start, len(rows)),
            self._celsius.slice(start, len(rows)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=AVERAGED)


def parse(batch: Batch) -> Batch:
    """Read the JSON lines, one by one as a user would."""
    rows = [orjson.loads(line) for line in batch.column("line").to_pylist()]
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in READING]
    return pa.record_batch(columns, schema=READING)


def in_range(batch: Batch) -> pa.BooleanArray:
    """Tell which readings a working sensor may have sent."""
    celsius = batch.column("celsius")
    return pc.and_(pc.greater(celsius, -40.0), pc.less(celsius, 60.0))


def add_fahrenheit(batch: Batch) -> Batch:
    """Convert the temperature."""
    return batch.append_column("fahrenheit", pc.add(pc.multiply(batch.column("celsius"), 1.8), 32.0))


def add_muggy(batch: Batch) -> Batch:
    """Judge the air."""
    warm, humid = pc.greater(batch.column("celsius"), 24.0), pc.greater(batch.column("humidity"), 60.0)
    return batch.append_column("muggy", pc.and_(warm, humid))


CHAIN: Final[tuple[Callable[[Batch], Batch], ...]] = (
    parse,
    lambda batch: batch.filter(in_range(batch)),
    add_fahrenheit,
    add_muggy,
    lambda batch: batch.select(KEPT),
)


def run_chain(batch: Batch) -> Batch:
    """Run the whole chain on a batch, without any engine."""
    for step in CHAIN:
        batch = step(batch)
    return batch


def averages(values: Iterable[float], last: deque[float]) -> Iterator[float]:
    """Yield the mean of the sensor's last rows after each value; `last` is its state and is brought up to date."""
    for value in values:
        last.append(value)
        yield sum(last) / len(last)


def sliding_average(batch: Batch, state: KeyedState) -> Batch:
    """Add the mean of the sensor's last rows to every row: the form that Headwater runs."""
    kept = [deque(values, LAST_ROWS) for values in state.values(())]
    celsius = batch.column("celsius").to_pylist()
    means = [next(averages((value,), kept[code])) for value, code in zip(celsius, state.codes.tolist(), strict=True)]
    state.put_values([list(last) for last in kept])
    return batch.append_column("mean", pa.array(means, pa.float64()))
