"""RemoveDuplicates in four stages: messages, their ids, the first of each id, results."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from ..chance import normal, uniform, whole

MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("sensor", pa.int64()),
        ("number", pa.int64()),
        ("celsius", pa.float64()),
    ]
)

_BEGAN_US: Final = 1_767_225_600_000_000  # 2026-01-01
_STEP_US: Final = 20_000
_SENSORS: Final = 100
_REPEATED: Final = 0.2  # so many rows are a message that was sent again
_BEHIND_MAX: Final = 50  # rows, or one second


@dataclass(frozen=True)
class RepeatedMessages:
    """Fifty messages a second from a hundred sensors; one row in five repeats a message of the last second."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        rows = np.arange(first, first + count)
        repeated = uniform(rows, self.seed, 1) < _REPEATED
        message = np.maximum(rows - np.where(repeated, 1 + whole(rows, _BEHIND_MAX, self.seed, 2), 0), 0)
        number, sensor = np.divmod(message, _SENSORS)
        columns = [_BEGAN_US + message * _STEP_US, sensor, number, 15 + 5 * normal(message, self.seed, 3)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGE_SCHEMA, strict=True)]
        return pa.record_batch(arrays, schema=MESSAGE_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class RemoveDuplicates(hw.App):
    """Lets each message of a sensor pass once, however often it was sent."""

    name: ClassVar[str] = "scaling.remove_duplicates"

    lag: str = "2 seconds"
    remembered: str = "10 seconds"
    parallelism: int = 2
    seed: int = 1

    @property
    def schema(self) -> pa.Schema:
        """A reading, with the sensor's number of it."""
        return MESSAGE_SCHEMA

    def made(self) -> RepeatedMessages:
        """Return a generator of messages."""
        return RepeatedMessages(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Make an id of sensor and number, and pass the first message of each id."""
        identified = rows.map(identify, name="identify", parallelism=self.parallelism).with_watermark("at", self.lag)
        return identified.dedup(
            "id", event_time="at", within=self.remembered, name="dedup", parallelism=self.parallelism
        )


def identify(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Add the id of each message, such as `17-204`."""
    parts = [pc.cast(messages[name], pa.string()) for name in ("sensor", "number")]
    return messages.append_column("id", pc.binary_join_element_wise(*parts, "-"))
