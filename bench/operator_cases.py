"""The operators that are measured alone: the same work as a Headwater operator and as a bare vectorised function.

The bare functions are what a careful author writes with Arrow and NumPy for one process that never fails: state in
ordinary variables, nothing durable, nothing that could be cut by key or moved. They do the whole work: watermark,
late rows, what comes out when a window closes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

SECOND: Final = 1_000_000
BEGAN_US: Final = 1_700_000_000 * SECOND
ROW_US: Final = 1_000  # event time between two rows: a thousand rows a second
INSTANCES: Final = 4  # over which key_by spreads
SCHEMA: Final = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("sensor", pa.string()), ("id", pa.int64()), ("value", pa.float64())]
)

Step = tuple[int, pa.RecordBatch]  # which input, and its rows


class Bare(Protocol):
    """The same work without an engine."""

    def __call__(self, source: int, batch: pa.RecordBatch) -> Any:
        """Take rows and return what comes out."""
        ...


@dataclass(frozen=True)
class Case:
    """One operator."""

    name: str
    flow: Callable[[hw.Stream, hw.Stream], hw.Stream] | None  # None: routing, measured as such
    bare: Callable[[], Bare]
    inputs: int = 1
    repeat: int = 1  # how often a round goes over its batches: what costs microseconds must run for longer
    goal: float | None = 0.5  # ours, as a share of the bare function's rows per second


def steps(count: int, rows: int, keys: int, inputs: int, seed: int = 7) -> list[Step]:
    """Return batches in order of event time, a few rows out of order, the inputs in turn."""
    made = []
    rng = np.random.default_rng(seed)
    names = pa.array([f"sensor-{number:07d}" for number in range(keys)])
    for number in range(count):
        first = number // inputs * rows
        jitter = rng.integers(-500, 500, rows) * ROW_US
        times = BEGAN_US + (first + np.arange(rows)) * ROW_US + jitter
        codes = rng.integers(0, keys, rows)
        columns = [
            pa.array(times, pa.timestamp("us", "UTC")),
            names.take(pa.array(codes)),
            pa.array(codes, pa.int64()),
            pa.array(rng.normal(20.0, 5.0, rows)),
        ]
        made.append((number % inputs, pa.RecordBatch.from_arrays(columns, schema=SCHEMA)))
    return made


def to_fahrenheit(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The map: one column more."""
    made = pc.add(pc.multiply(batch.column("value"), 1.8), 32.0)
    return batch.append_column("fahrenheit", made)


def warm(batch: pa.RecordBatch) -> pa.Array:
    """The filter: about half of the rows."""
    return pc.greater(batch.column("value"), 20.0)


class BareMap:
    """The function itself."""

    def __call__(self, source: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Call it."""
        return to_fahrenheit(batch)


class BareFilter:
    """The mask applied."""

    def __call__(self, source: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter."""
        return batch.filter(warm(batch))


class BareKeyBy:
    """Rows split by the hash of their key."""

    def __call__(self, source: int, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Hash each distinct key once, and take the rows of each owner."""
        encoded = batch.column("sensor").dictionary_encode()
        owners = np.array([crc32(key.encode()) % INSTANCES for key in encoded.dictionary.to_pylist()])
        of_row = owners[encoded.indices.to_numpy()]
        return [batch.take(pa.array(np.flatnonzero(of_row == owner))) for owner in range(INSTANCES)]


class BareWindow:
    """Partial aggregates of panes by Arrow's own group_by, merged into a table of open panes batch by batch."""

    AGGREGATES: Final = [("value", "count"), ("value", "sum"), ("value", "max")]
    MERGED: Final = [("value_count", "sum"), ("value_sum", "sum"), ("value_max", "max")]

    def __init__(self, size_us: int, slide_us: int, delay_us: int) -> None:
        """Begin without panes."""
        self._size, self._slide, self._delay = size_us, slide_us, delay_us
        self._open: pa.Table | None = None
        self._watermark = 0
        self._fired = 0

    def __call__(self, source: int, batch: pa.RecordBatch) -> list[pa.Table]:
        """Aggregate, merge, and return the windows that the watermark has passed."""
        times = batch.column("ts").cast(pa.int64()).to_numpy()
        panes = times // self._slide * self._slide
        kept = panes + self._size > self._watermark
        table = pa.table({"pane": panes, "sensor": batch.column("sensor"), "value": batch.column("value")})
        if not kept.all():
            table = table.filter(pa.array(kept))
        part = table.group_by(["pane", "sensor"]).aggregate(self.AGGREGATES)
        self._open = part if self._open is None else self._merge(pa.concat_tables([self._open, part]), ["pane"])
        self._watermark = max(self._watermark, int(times.max()) - self._delay)
        return self._fire()

    def _merge(self, table: pa.Table, by: list[str]) -> pa.Table:
        merged = table.group_by([*by, "sensor"]).aggregate(self.MERGED)
        return merged.rename_columns([*by, "sensor", "value_count", "value_sum", "value_max"])

    def _fire(self) -> list[pa.Table]:
        assert self._open is not None
        ends = self._watermark // self._slide * self._slide
        first = self._fired or int(pc.min(self._open["pane"]).as_py()) + self._slide
        fired = []
        for end in range(first, ends + 1, self._slide):
            inside = pc.and_(pc.greater_equal(self._open["pane"], end - self._size), pc.less(self._open["pane"], end))
            panes = self._open.filter(inside)
            if panes.num_rows:
                fired.append(panes if self._size == self._slide else self._merge(panes, []))
        if ends >= first:
            self._fired = ends + self._slide
            self._open = self._open.filter(pc.greater(self._open["pane"], ends - self._size))
        return fired


class BareDedup:
    """The ids seen in the last ten seconds, in a dict."""

    def __init__(self, within_us: int, delay_us: int) -> None:
        """Begin without ids."""
        self._within, self._delay = within_us, delay_us
        self._until: dict[int, int] = {}
        self._watermark = 0
        self._swept = 0

    def __call__(self, source: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Find the first row of each id in the batch, keep the new ones, forget the old ones now and then."""
        times = batch.column("ts").cast(pa.int64()).to_numpy()
        on_time = np.flatnonzero(times >= self._watermark)
        ids, first = np.unique(batch.column("id").to_numpy()[on_time], return_index=True)
        until = self._until
        new = []
        for one, row in zip(ids.tolist(), on_time[first].tolist(), strict=True):
            known = until.get(one)
            if known is None or known < self._watermark:
                until[one] = int(times[row]) + self._within
                new.append(row)
        self._watermark = max(self._watermark, int(times.max()) - self._delay)
        if self._watermark - self._swept > self._within:
            self._swept = self._watermark
            self._until = {one: end for one, end in until.items() if end >= self._watermark}
        return batch.take(pa.array(sorted(new), pa.int64()))


class BareJoin:
    """Rows of both sides in the windows that are open, joined batch by batch by Arrow's own hash join."""

    def __init__(self, size_us: int, delay_us: int) -> None:
        """Begin without rows."""
        self._size, self._delay = size_us, delay_us
        self._held: list[list[pa.Table]] = [[], []]
        self._latest = [0, 0]

    def __call__(self, source: int, batch: pa.RecordBatch) -> pa.Table:
        """Pair the rows with those of the other side, then hold them for rows to come."""
        times = batch.column("ts").cast(pa.int64()).to_numpy()
        table = pa.table({"window": times // self._size * self._size, **_columns(batch)})
        watermark = min(self._latest) - self._delay
        late = table["window"].to_numpy() + self._size <= watermark
        if late.any():
            table = table.filter(pa.array(~late))
        pairs = self._pair(table, source)
        self._held[source].append(table)
        self._latest[source] = max(self._latest[source], int(times.max()))
        self._forget(min(self._latest) - self._delay)
        return pairs

    def _pair(self, table: pa.Table, source: int) -> pa.Table:
        other = self._held[1 - source]
        if not other:
            return table.slice(0, 0)
        return table.join(pa.concat_tables(other), ["window", "sensor"], join_type="inner", right_suffix="_right")

    def _forget(self, watermark: int) -> None:
        for side in range(2):
            kept = [one for one in self._held[side] if int(one["window"].to_numpy().max()) + self._size > watermark]
            self._held[side] = kept


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in batch.schema.names}


def _summaries(stream: hw.Stream, window: Any) -> hw.Stream:
    keyed = stream.with_watermark("ts", "1 second").key_by("sensor")
    return keyed.window(window).agg(F.count("value"), F.sum("value"), F.max("value"), name="operator")


CASES: Final = (
    Case("map", lambda one, _: one.map(to_fahrenheit, name="operator"), BareMap, repeat=30),
    Case("filter", lambda one, _: one.filter(warm, name="operator"), BareFilter, repeat=30),
    Case("key_by", None, BareKeyBy, repeat=5),
    Case(
        "tumbling",
        lambda one, _: _summaries(one, F.window("ts", "10 seconds")),
        lambda: BareWindow(10 * SECOND, 10 * SECOND, SECOND),
    ),
    Case(
        "sliding",
        lambda one, _: _summaries(one, F.window("ts", "10 seconds", "2 seconds")),
        lambda: BareWindow(10 * SECOND, 2 * SECOND, SECOND),
    ),
    Case(
        "join",
        lambda one, other: one.with_watermark("ts", "1 second").join(
            other.with_watermark("ts", "1 second"), "sensor", window=F.window("ts", "2 seconds"), name="operator"
        ),
        lambda: BareJoin(2 * SECOND, SECOND),
        inputs=2,
    ),
    Case(
        "dedup",
        lambda one, _: one.with_watermark("ts", "1 second").dedup(
            "id", event_time="ts", within="10 seconds", name="operator"
        ),
        lambda: BareDedup(10 * SECOND, SECOND),
    ),
)


def watermarks(made: Sequence[Step], delay_us: int = SECOND) -> Iterator[int]:
    """Yield the watermark behind each batch: of both inputs, the one that is further behind."""
    latest: dict[int, npt.NDArray[np.int64] | int] = {}
    inputs = 1 + max(source for source, _ in made)
    for source, batch in made:
        latest[source] = max(int(latest.get(source, 0)), int(pc.max(batch.column("ts")).value))
        lowest = min(int(latest.get(number, 0)) for number in range(inputs))
        yield lowest - lowest % 1_000 - delay_us
