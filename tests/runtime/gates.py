"""A gate that operators wait at, in whatever process they run: a file lock, so nobody has to look again and again."""

import fcntl
from pathlib import Path

import pyarrow as pa


class Gate:
    """Closed until a test opens it; afterwards everybody passes."""

    def __init__(self, directory: Path) -> None:
        """Close it, by holding the lock alone."""
        self.path = str(directory / "gate")
        self._file = open(self.path, "w")  # noqa: SIM115 - held until the gate opens
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let everybody pass."""
        self._file.close()


def wait_at(path: str) -> None:
    """Wait until the gate at this path is open: for a function that runs in a worker."""
    import fcntl as locks

    with open(path) as gate:
        locks.flock(gate, locks.LOCK_SH)


def passing(path: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows once the gate at this path is open."""
    wait_at(path)
    return batch
