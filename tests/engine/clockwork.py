"""A timed operator that shows what the engine tells it: it holds rows back until time has passed them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headwater.dataflow.stream import Stream, Vertex
from headwater.model.entries import entry_of
from headwater.model.keys import encode_key
from headwater.operators.base import Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.watermarks import micros_of

HELD = 7


@dataclass(frozen=True, kw_only=True)
class Hold(TimedOperator):
    """Lets rows out in order of event time, once the watermark has passed them; those behind it are late."""

    kind: ClassVar[str] = "hold"
    time: str = "t"
    key_columns: tuple[str, ...] = ("k",)
    by_clock_us: int | None = None  # lets all out so long after they came, by the clock
    sides: int = 1

    def open(self) -> TimedLogic:
        """Return the logic."""
        return _Holding(self)

    @property
    def ports(self) -> tuple[str, ...]:
        """Late rows have a port of their own."""
        return ("out", "late")

    @property
    def key(self) -> tuple[str, ...]:
        """The key."""
        return self.key_columns

    @property
    def inputs(self) -> int:
        """One, or two."""
        return self.sides

    @property
    def needs_watermark(self) -> bool:
        """By event time."""
        return self.by_clock_us is None


class _Holding:
    def __init__(self, config: Hold) -> None:
        self._config = config

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        times, _ = micros_of(batch, self._config.time)
        late = times < moment.watermark_us
        for row, time_us, gone in zip(batch.to_pylist(), times.tolist(), late.tolist(), strict=True):
            if not gone:
                due_us = time_us if self._config.by_clock_us is None else moment.now_us + self._config.by_clock_us
                kept = pa.RecordBatch.from_pylist([row], schema=batch.schema).serialize().to_pybytes()
                number = int.from_bytes(moment.state.own("number") or b"", "big") + 1
                moment.state.keep_own("number", number.to_bytes(4, "big"))
                name = entry_of(HELD, due_us, encode_key(row["k"])) + number.to_bytes(4, "big")
                moment.state.put(name, bytes([source]) + kept)
                moment.state.share("schema", batch.schema.serialize().to_pybytes())
        return (None, batch.filter(pa.array(late)))

    def advance(self, moment: Moment) -> Outputs:
        limit = moment.watermark_us
        if self._config.by_clock_us is not None and moment.watermark_us < (1 << 62):
            limit = moment.now_us + 1
        due = list(moment.state.held(HELD, before_us=limit))
        moment.state.delete_many(found.entry for found in due)
        schema = moment.state.shared("schema")
        if not due or schema is None:
            return (None, None)
        read = pa.ipc.read_schema(pa.py_buffer(schema))
        batches = [pa.ipc.read_record_batch(pa.py_buffer(found.value[1:]), read) for found in due]
        return (pa.concat_batches(batches), None)

    def wake_us(self, moment: Moment) -> int | None:
        return None if self._config.by_clock_us is None else moment.state.first_us(HELD)


def hold(*inputs: Stream, parallelism: int = 1, name: str = "hold", by_clock_us: int | None = None) -> Stream:
    """Hang a hold on one or two streams."""
    keyed: Sequence[Stream] = [stream.key_by("k") for stream in inputs]
    operator = Hold(sides=len(inputs), by_clock_us=by_clock_us)
    return Stream(Vertex(operator, tuple(keyed), name, parallelism))
