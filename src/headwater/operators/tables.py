"""What a table is to the operators that look rows up in it: something that can be loaded, and loaded again."""

from typing import Protocol

import pyarrow as pa


class TableSpec(Protocol):
    """A table beside the stream: frozen data that says where its rows are. Workers load it, each for itself."""

    @property
    def refresh_us(self) -> int | None:
        """How long the rows may be used before they are asked for again; None: for ever."""
        ...

    def load(self, now_us: int) -> pa.Table:
        """Return the rows as they are now, or raise with a sentence that says why they cannot be had."""
        ...

    def refresh(self, now_us: int) -> pa.Table | None:
        """Return the rows as they are now; None if they cannot be had just now, and those in use must do."""
        ...
