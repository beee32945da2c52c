"""Sources and sinks that only stand in a flow: to open one is the mistake that a test wants to see."""

from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

import pyarrow as pa

from headwater.dataflow.connectors import Position
from headwater.dataflow.stream import Stream, source

READINGS = pa.schema([("sensor", pa.string()), ("value", pa.int64())])


@dataclass(frozen=True)
class Closed:
    """A source that must not be opened."""

    kind: ClassVar[str] = "closed"
    schema: pa.Schema | None = None
    can_wait: bool = True
    blocking: bool = False
    guarantee: str = "exactly-once"

    def open(self, position: Position | None) -> NoReturn:
        """Say that somebody opened it."""
        raise AssertionError("a source was opened")


@dataclass(frozen=True)
class Wall:
    """A sink that must not be opened."""

    kind: ClassVar[str] = "wall"
    guarantee: str = field(default="exactly-once")
    blocking: bool = False

    def open(self, position: Position | None) -> NoReturn:
        """Say that somebody opened it."""
        raise AssertionError("a sink was opened")


def readings(name: str | None = None) -> Stream:
    """Return a stream with known columns."""
    return source(Closed(READINGS), name=name)


def rows_of_any_kind(name: str | None = None) -> Stream:
    """Return a stream whose columns only running can tell."""
    return source(Closed(), name=name)
