"""The rows that leave a window: window, key, contents, and why they leave now."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headwater.operators.chain import unite
from headwater.operators.columns.vectors import plain_type, window_column, window_type
from headwater.operators.windows.panes import Instants
from headwater.operators.windows.window_contents import Contents, Finished

WINDOW: Final = "window"
FIRING: Final = "firing"

EARLY: Final = 0
ON_TIME: Final = 1
LATE: Final = 2
_FIRINGS: Final = pa.array(["early", "on-time", "late"])

Named = list[tuple[str, pa.Array]]


class Fired(NamedTuple):
    """The windows that fire, in the order in which they come out."""

    keys: Sequence[Any]
    starts: Instants
    ends: Instants
    firings: Sequence[int]


class WindowOutput:
    """Puts together the rows that come out."""

    def __init__(self, key_columns: tuple[str, ...], time: str | None, contents: Contents, *, says_why: bool) -> None:
        """Name the columns; `says_why` adds the kind of firing."""
        self._key_columns = () if contents.has_keys else key_columns
        self._time = time
        self._says_why = says_why

    def timed(self, fired: Fired, finished: Finished, schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the rows of windows by time."""
        kind = window_type(None if self._time is None else schema.field(self._time).type)
        head = [(WINDOW, window_column(fired.starts, fired.ends, kind)), *self._keys(fired.keys, schema)]
        tail = [(FIRING, _FIRINGS.take(pa.array(fired.firings)))] if self._says_why else []
        return _assembled(head, finished, tail)

    def counted(self, keys: Sequence[Any], finished: Finished, schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the rows of windows by number, which have no time."""
        return _assembled(self._keys(keys, schema), finished, [])

    def _keys(self, keys: Sequence[Any], schema: pa.Schema) -> Named:
        if not self._key_columns:
            return []
        parts = [keys] if len(self._key_columns) == 1 else list(zip(*keys, strict=True))
        return [
            (name, pa.array(part, type=plain_type(schema.field(name).type)))
            for name, part in zip(self._key_columns, parts, strict=True)
        ]


def _assembled(head: Named, finished: Finished, tail: Named) -> pa.RecordBatch | None:
    if not finished.rows.num_rows:
        return None
    if finished.run is not None:
        run = pa.array(finished.run)
        head = [(name, column.take(run)) for name, column in head]
        tail = [(name, column.take(run)) for name, column in tail]
    named = [*head, *zip(finished.rows.schema.names, finished.rows.columns, strict=True), *tail]
    return pa.RecordBatch.from_arrays([column for _, column in named], names=[name for name, _ in named])


def together(*batches: pa.RecordBatch | None) -> pa.RecordBatch | None:
    """Return all rows as one batch, or None if there are none."""
    made = [batch for batch in batches if batch is not None and batch.num_rows]
    return unite(made) if made else None
