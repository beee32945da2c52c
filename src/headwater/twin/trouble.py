"""How an executor tells the driver which row of which operator has failed.

Spark passes an exception on as the text of a Java one, and on a session that retries tasks for ever, as a node's does,
not at all. So an executor writes a user's error to a file in the run's folder, which all executors see, and raises; the
driver finds the file, stops the queries and raises the same error as Headwater would.
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
    """The parts of a user's error, or the text of another error."""

    told: list[str]


@dataclass(frozen=True)
class TroubleBox:
    """A folder for errors. Pickled for the executors."""

    directory: str

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Report whatever is raised inside the block."""
        try:
            yield
        except Exception as failure:  # a user's code may raise anything
            self.tell(failure)
            raise

    def tell(self, failure: Exception) -> None:
        """Write an error to where the driver looks for it."""
        if isinstance(failure, UserCodeError):
            told = [failure.flow, failure.operator, failure.error, failure.line, failure.row]
        else:
            told = [str(failure) if isinstance(failure, HeadwaterError) else f"{type(failure).__name__}: {failure}"]
        hidden = Path(self.directory) / uuid4().hex
        hidden.write_bytes(msgspec.msgpack.encode(_Facts(told)))
        hidden.rename(hidden.with_suffix(_TOLD))

    def first(self) -> HeadwaterError | None:
        """Return the earliest error."""
        found = [Path(entry.path) for entry in os.scandir(self.directory) if entry.name.endswith(_TOLD)]
        if not found:
            return None
        earliest = min(found, key=lambda path: path.stat().st_mtime_ns)
        facts = msgspec.msgpack.decode(earliest.read_bytes(), type=_Facts)
        return EngineError(facts.told[0]) if len(facts.told) == 1 else UserCodeError(*facts.told)
