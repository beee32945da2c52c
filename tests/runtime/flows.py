"""Flows and their oracles, used by several tests: what the engine must give is worked out here in plain Python."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater.dataflow.connectors import SinkSpec

SENSORS = 13


def made_rows(first: int, count: int) -> pa.RecordBatch:
    """Rows `first` to `first + count`: a number and the sensor it came from."""
    numbers = range(first, first + count)
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "sensor": [f"s{n * 7 % SENSORS}" for n in numbers]})


def twice(row: hw.Row) -> list[hw.Row]:
    """Each row, and every third once more as an echo."""
    return [row, {**row, "n": -row["n"]}] if row["n"] % 3 == 0 else [row]


def count_and_sum(batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """The running count and sum of every sensor, row by row."""
    values = state.values([0, 0])
    counts, sums = [], []
    for n, code in zip(batch["n"].to_pylist(), state.codes.tolist(), strict=True):
        count, total = values[code]
        values[code] = [count + 1, total + n]
        counts.append(count + 1)
        sums.append(total + n)
    state.put_values(values)
    return batch.append_column("count", pa.array(counts)).append_column("sum", pa.array(sums))


def running_sums(name: str, rows: int, sink: SinkSpec, *, rate: float | None = None, parallelism: int = 2) -> hw.Flow:
    """A flow with a filter, a flat map and a keyed stateful operator: each kind of change to the rows."""
    made = hw.read.generator(made_rows, rows=rows, rate=rate)
    kept = made.filter(lambda batch: pc.not_equal(pc.bit_wise_and(batch["n"], 3), 1), name="not-1-mod-4")
    counted = kept.flat_map(twice).key_by("sensor").stateful(count_and_sum, parallelism=parallelism)
    return hw.flow(name, counted.sink(sink))


def expected_sums(rows: int) -> dict[str, list[tuple[int, int, int]]]:
    """What `running_sums` must give: for every sensor (n, count, sum) in order."""
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    expected: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for n in range(rows):
        if n & 3 == 1:
            continue
        sensor = f"s{n * 7 % SENSORS}"
        for value in (n, -n) if n % 3 == 0 else (n,):
            count, total = totals[sensor]
            totals[sensor] = count + 1, total + value
            expected[sensor].append((value, count + 1, total + value))
    return dict(expected)


def by_sensor(rows: list[dict[str, Any]]) -> dict[str, list[tuple[int, int, int]]]:
    """Rows that came out, in the same form."""
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        found[row["sensor"]].append((row["n"], row["count"], row["sum"]))
    return dict(found)
