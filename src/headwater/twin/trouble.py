"""How an executor tells the driver which row of which operator made trouble.

Spark carries an exception as the text of a Java one, and on a session that tries tasks again for ever, as a node's
does, not at all. So whoever runs a user's function writes what happened to a file in the run's directory, which all
executors see, and raises; the driver finds the file, stops the queries and raises the same error as Headwater would.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from headwater.model.errors import EngineError, HeadwaterError, UserCodeError

_TOLD: Final = ".told"


class _Facts(msgspec.Struct, array_like=True):
    """A user's error, in parts, or the sentence of another."""

    told: list[str]


@dataclass(frozen=True)
class TroubleBox:
    """A directory for errors. Travels to the executors."""

    directory: str

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Tell of whatever is raised inside the block."""
        try:
            yield
        except Exception as failure:  # a user's code may raise anything
            self.tell(failure)
            raise

    def tell(self, failure: Exception) -> None:
        """Keep an error where the driver finds it."""
        if isinstance(failure, UserCodeError):
            told = [failure.flow, failure.operator, failure.error, failure.line, failure.row]
        else:
            told = [str(failure) if isinstance(failure, HeadwaterError) else f"{type(failure).__name__}: {failure}"]
        hidden = Path(self.directory) / uuid4().hex
        hidden.write_bytes(msgspec.msgpack.encode(_Facts(told)))
        hidden.rename(hidden.with_suffix(_TOLD))

    def first(self) -> HeadwaterError | None:
        """Return the error that was told first."""
        found = [Path(entry.path) for entry in os.scandir(self.directory) if entry.name.endswith(_TOLD)]
        if not found:
            return None
        earliest = min(found, key=lambda path: path.stat().st_mtime_ns)
        facts = msgspec.msgpack.decode(earliest.read_bytes(), type=_Facts)
        return EngineError(facts.told[0]) if len(facts.told) == 1 else UserCodeError(*facts.told)
