"""Generated rows: a function of the row number, or the items of a Python iterable.

A generated row is a pure function of its number, so the number is the whole position. An iterable is iterated again
after a restart, and the rows that are stored already are skipped and counted. An iterable that may block is drained by
a thread of its own, so that a row leaves when it comes and several that came together leave together.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from threading import Condition, Thread
from typing import Any, Final

from headwater.connectors.columns import KnownColumns, as_batch
from headwater.connectors.frames import is_frame
from headwater.connectors.reading import Piece, Waiting
from headwater.dataflow.connectors import Position
from headwater.model.errors import ConnectorError

BACKLOG_MAX: Final = 10_000  # items a thread may be ahead of the flow
WAIT_SECONDS: Final = 0.05  # how long a poll may wait for an item, so that a reader can still be closed


class GeneratorFeed:
    """Rows that a function generates."""

    def __init__(
        self,
        function: Callable[[int, int], Any],
        known: KnownColumns,
        *,
        rows: int | None,
        batch_rows: int,
        position: Position | None,
    ) -> None:
        """Begin at the row of the position."""
        self._function, self._known, self._rows, self._batch_rows = function, known, rows, batch_rows
        self._row: int = 0 if position is None else position["row"]
        self._is_over = False

    def pull(self, rows_max: int) -> Piece | Waiting | None:
        """Generate the next rows; fewer than were asked for are the last."""
        count = self._batch_rows if self._rows is None else min(self._batch_rows, self._rows - self._row)
        if count <= 0 or self._is_over:
            return None
        first, where = self._row, f"generator, rows {self._row} to {self._row + count - 1}"
        rows = as_batch(self._function(first, count), self._known.declaration, where, first)
        batch = self._known.fit(rows, where)
        if batch.num_rows > count:
            raise ConnectorError(
                f"{where}: the function returned {batch.num_rows} rows; return at most those asked for"
            )
        self._is_over = batch.num_rows < count
        if batch.num_rows == 0:
            return None
        self._row += batch.num_rows
        remembered = self._known.remembered()
        return Piece(batch, lambda rows: {"row": first + rows, **remembered})

    def close(self) -> None:
        """Do nothing: nothing is open."""


class IterableFeed:
    """The rows of an iterable of row dicts, tables or single values."""

    def __init__(self, items: "Items | DrainedItems", known: KnownColumns, *, position: Position | None) -> None:
        """Iterate from the start, skipping what the position says is stored."""
        self._items, self._known = items, known
        self._stored: int = 0 if position is None else position["row"]
        self._seen = 0
        self._passed = 0  # skipped rows that no piece has reported yet

    def pull(self, rows_max: int) -> Piece | Waiting | None:
        """Return the next rows that are not stored yet."""
        while True:
            taken = self._items.take(rows_max)
            if taken is None:
                self._refuse_if_shorter()
                return None
            if not taken:
                return Waiting()
            piece = self._piece(taken)
            if piece is not None:
                return piece

    def close(self) -> None:
        """Stop the thread of a draining iterable."""
        self._items.close()

    def _piece(self, taken: list[Any]) -> Piece | None:
        first, where = self._seen, "iterable"
        rows = taken[0] if is_frame(taken[0]) else taken
        batch = as_batch(rows, self._known.declaration, where, first)
        self._seen += batch.num_rows
        stored = min(max(self._stored - first, 0), batch.num_rows)
        self._passed += stored
        if stored == batch.num_rows:
            return None
        batch = self._known.fit(batch.slice(stored), f"iterable, row {first + stored}")
        remembered, start = self._known.remembered(), first + stored
        refused, self._passed = self._passed, 0
        return Piece(batch, lambda rows: {"row": start + rows, **remembered}, refused=refused)

    def _refuse_if_shorter(self) -> None:
        if self._seen < self._stored:
            raise ConnectorError(
                f"the iterable gave {self._seen} rows, but {self._stored} are stored from an earlier run; "
                "give the same rows again, or start the app afresh"
            )


class Items:
    """An iterable that never makes us wait, such as a list."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._ahead: list[Any] = []

    def take(self, items_max: int) -> list[Any] | None:
        """Return the next rows, or one table by itself; None at the end, an empty list if there is nothing yet."""
        ahead, self._ahead = self._ahead, []
        return _gathered(chain(ahead, self._items), items_max, self._ahead.append)

    def close(self) -> None:
        """Do nothing: nothing is running."""


def _gathered(items: Iterator[Any], items_max: int, put_back: Callable[[Any], None]) -> list[Any] | None:
    rows: list[Any] = []
    for item in items:
        if is_frame(item):
            if not rows:
                return [item]
            put_back(item)
            return rows
        rows.append(item if isinstance(item, Mapping) else {"value": item})
        if len(rows) >= items_max:
            return rows
    return rows or None


class DrainedItems:
    """An iterable that may block, drained by a thread into a bounded backlog."""

    def __init__(self, items: Iterable[Any]) -> None:
        """Begin without the thread, which the first take starts."""
        self._source = items
        self._backlog: deque[Any] = deque()
        self._changed = Condition()
        self._is_over = self._is_closed = False
        self._failure: Exception | None = None
        self._thread: Thread | None = None

    def take(self, items_max: int) -> list[Any] | None:
        """Return what has come, waiting shortly for a first item; None at the end."""
        if self._thread is None:
            self._thread = Thread(target=self._drain, name="headwater-iterable", daemon=True)
            self._thread.start()
        with self._changed:
            if not self._backlog and not self._is_over:
                self._changed.wait(WAIT_SECONDS)
            if self._backlog:
                rows = _gathered(self._popped(), items_max, self._backlog.appendleft)
                self._changed.notify_all()
                return rows
            if self._failure is not None:
                raise self._failure
            return None if self._is_over else []

    def close(self) -> None:
        """Let the thread end with the next item; one that is blocked ends with the process."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _popped(self) -> Iterator[Any]:
        while self._backlog:
            yield self._backlog.popleft()

    def _drain(self) -> None:
        try:
            for item in self._source:
                if not self._offer(item):
                    return
        except Exception as failure:  # raised again in the thread that reads
            self._failure = failure
        except BaseException as failure:  # such as SystemExit: it ends neither the rows nor the reading thread
            self._failure = ConnectorError(f"its iterable broke off with {type(failure).__name__}: {failure}")
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _offer(self, item: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._backlog) < BACKLOG_MAX or self._is_closed)
            self._backlog.append(item)
            if len(self._backlog) == 1:
                self._changed.notify_all()
        return not self._is_closed
