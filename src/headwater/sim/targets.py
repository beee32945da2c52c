"""What sinks of the imagined world write to: like a file it survives its node, and is cut off where a writer begins.

So a node that crashes between a write and the commit behind it is seen to write those rows again, and none twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from headwater.dataflow.connectors import Position

Outputs = dict[str, Counter[str]]  # by sink: rows as texts, and how often


class Targets:
    """All targets of a world."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[str]] = {}  # by app and sink

    def open(self, app: str, sink: str, position: Position | None) -> "TargetWriter":
        """Go on behind a position; what lies past it was written by a node that did not commit it."""
        rows = self._rows.setdefault((app, sink), [])
        del rows[0 if position is None else int(position["rows"]) :]
        return TargetWriter(rows)

    def written(self, app: str, sinks: Iterable[str]) -> Outputs:
        """Return what is in the targets of an app's sinks."""
        return {sink: Counter(self._rows.get((app, sink), ())) for sink in sinks}

    def rows(self) -> Iterator[int]:
        """Yield how many rows each target has."""
        yield from map(len, self._rows.values())


class TargetWriter:
    """Writes to one target."""

    def __init__(self, rows: list[str]) -> None:
        self._rows = rows

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Append rows, and return how many there are."""
        self._rows.extend(as_text(row) for batch in batches for row in batch.to_pylist())
        return {"rows": len(self._rows)}

    def close(self) -> None:
        """Nothing is held."""


def as_text(row: dict[str, Any]) -> str:
    """Return a row as a text that is the same for equal rows; sums of floats may come in another order."""
    return repr({name: _rounded(value) for name, value in sorted(row.items())})


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.9g}")
        case dict():
            return {name: _rounded(one) for name, one in sorted(value.items())}
        case list():
            return [_rounded(one) for one in value]
    return value
