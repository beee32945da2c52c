"""How rows enter and leave a flow, as the engine sees it.

A connector is frozen configuration (`SourceSpec`, `SinkSpec`) that a flow carries, and a reader or writer that the
runtime opens on the node. Exactly once rests on positions: the engine commits a source's position in the same
transaction as the rows that led to it, and a sink's position in the same transaction as the rows it has taken, so after
a crash each goes on just behind what is committed. A position is opaque to the engine: plain data of msgpack kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa

Position = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a source has ready, and where it will stand once they are stored."""

    batch: pa.RecordBatch
    position: Position
    due_us: int | None = None  # when a paced source should have sent the first of them; None means just now
    refused: int = 0  # rows seen again that were stored before, and left out here
    unparsable: int = 0  # lines that are no row and, as the user wished, are left out and counted
    too_large: int = 0  # rows that no queue takes, left out and counted; the engine leaves out what the source does not


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to read now; ask again at this instant, or whenever it suits."""

    until_us: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The source has no more rows and never will."""


Poll = Rows | Idle | Ended


class SourceReader(Protocol):
    """An opened source. Used by one thread."""

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return up to so many rows without waiting, unless the source is `blocking`."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


@runtime_checkable
class Acknowledging(Protocol):
    """A reader whose sender keeps rows until it hears that they are safe, such as a message broker.

    Rows without any, that only bring a new position, are committed and told of as well: so a reader can have something
    remembered before it says anything to its sender.
    """

    def stored(self, position: Position) -> None:
        """Rows up to this position are committed, and no commit before it is open. Called by the thread that polls."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A reader, not `blocking`, whose rows come by a descriptor: it is asked as soon as there is something to read.

    What it says of when to ask again then only bounds the wait.
    """

    def fileno(self) -> int:
        """Return the descriptor, the same from its opening to its close."""
        ...


@runtime_checkable
class SourceSpec(Protocol):
    """A source as the flow declares it."""

    @property
    def kind(self) -> str:
        """A word for tables and pictures: `csv`, `generator`."""
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, if they are declared; None where only reading can tell."""
        ...

    @property
    def can_wait(self) -> bool:
        """Whether the source may be paused without losing anything: a file can wait, a sensor cannot."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether `poll` may block, so that the source needs a thread of its own."""
        ...

    @property
    def guarantee(self) -> str:
        """What the source promises across a restart: `exactly-once`, `at-least-once` or `at-most-once`."""
        ...

    def open(self, position: Position | None) -> SourceReader:
        """Start reading behind the position, or at the beginning."""
        ...


class SinkWriter(Protocol):
    """An opened sink. Used by one thread."""

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Put the rows where they belong, durably, and return the position reached; without rows, the one there is.

        After a crash the same rows may come again, to a writer opened at the position before them.
        """
        ...

    def close(self) -> None:
        """Finish what is open."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A reader or writer that has something to say to people: where it is connected, what it waits for, what it met."""

    def told(self) -> str:
        """Say it in a few words, without any secret; nothing if all is as expected. Called by any thread."""
        ...


def told_by(end: object) -> str:
    """Return what a reader or writer has to say."""
    return end.told() if isinstance(end, Telling) else ""


@runtime_checkable
class Interruptible(Protocol):
    """A writer whose `write` may wait for as long as it takes, and can be told to give up."""

    def interrupt(self) -> None:
        """Let a write raise rather than wait for somebody who is not there. Called by another thread."""
        ...


@runtime_checkable
class SinkSpec(Protocol):
    """A sink as the flow declares it."""

    @property
    def kind(self) -> str:
        """A word for tables and pictures: `csv`, `console`."""
        ...

    @property
    def guarantee(self) -> str:
        """What the sink promises across a restart."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether `write` may block for long, so that the sink needs a thread of its own."""
        ...

    def open(self, position: Position | None) -> SinkWriter:
        """Go on behind the position, undoing whatever was written past it; None means a new app."""
        ...


class ResourceKind(Enum):
    """Where two that want the same resource can meet: at the lock file that guards it."""

    FILE = "file"  # beside it
    DIRECTORY = "directory"  # in it
    NAME = "name"  # at one place for all processes of a user on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that only one source or sink can use at a time; two with the same kind and name are the same."""

    kind: ResourceKind
    name: str  # a path without links or detours, or what a person calls it
    harm: str = field(compare=False)  # what would come of two that use it at once
    advice: str = field(compare=False)


@runtime_checkable
class Exclusive(Protocol):
    """A source or sink that needs resources for itself: the runtime locks them from before its opening to its close."""

    def resources(self, position: Position | None) -> tuple[Resource, ...]:
        """Return what it needs where it goes on at this position; None, as for a new app, tells what the flow says."""
        ...


@runtime_checkable
class ReadsFiles(Protocol):
    """A source of files."""

    def reads(self, written: Resource) -> bool:
        """Whether what a sink of the same flow writes to a file or directory would come out of this source."""
        ...


def resources_of(part: object, position: Position | None = None) -> tuple[Resource, ...]:
    """Return what a source or sink needs for itself alone."""
    return part.resources(position) if isinstance(part, Exclusive) else ()


@runtime_checkable
class Resuming(Protocol):
    """A source or sink whose positions hold only under some of its settings: they mean nothing in another file."""

    @property
    def position_settings(self) -> Mapping[str, object]:
        """Those settings; another version of a flow goes on at a position if they are the same."""
        ...


@runtime_checkable
class Tabular(Protocol):
    """A sink whose rows must all have the columns of the first one."""

    @property
    def is_tabular(self) -> bool:
        """Always true: what tells it from other sinks."""
        ...


def is_source(part: object) -> TypeGuard[SourceSpec]:
    """Whether this is a source; its class alone is none."""
    return isinstance(part, SourceSpec) and not isinstance(part, type)


def is_sink(part: object) -> TypeGuard[SinkSpec]:
    """Whether this is a sink; a source has all the attributes of one, and some more."""
    return isinstance(part, SinkSpec) and not isinstance(part, SourceSpec | type)
