"""Windows by number: the last `size` rows of a key, whenever `slide` more have come.

Flink's countWindow, also in its edges: a sliding window fires from its first slide on, over the rows that there are,
and rows that do not complete a window when the input ends never come out.

A key's rows are numbered, and numbers are cut into panes just as time is. All panes of a key that a later window needs
are one entry with the number of rows so far, so a batch reads and writes one entry for each of its keys.
"""

import struct
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.model.keys import Codes
from headwater.model.time import END_OF_TIME
from headwater.operators.base import Moment, Outputs
from headwater.operators.columns.cell_names import CellNames
from headwater.operators.columns.long_keys import forget_long
from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.state import OperatorState
from headwater.operators.windows.panes import Instants, Panes, runs
from headwater.operators.windows.window_contents import COUNTED, Contents, Indices, arrivals
from headwater.operators.windows.window_output import WindowOutput
from headwater.operators.windows.window_rows import WindowRows
from headwater.operators.windows.window_specs import CountWindow

_SEEN: Final = struct.Struct("<q")
_PANE: Final = struct.Struct("<qI")


class Counted(NamedTuple):
    """How many rows a key has had, and the cells of its panes by the number of their first row."""

    seen: int
    cells: dict[int, bytes]


def decode_counted(entry: bytes | None) -> Counted:
    """Return what is known of a key's rows."""
    if entry is None:
        return Counted(0, {})
    (seen,), at, cells = _SEEN.unpack_from(entry), _SEEN.size, {}
    while at < len(entry):
        pane, length = _PANE.unpack_from(entry, at)
        at += _PANE.size + length
        cells[pane] = entry[at - length : at]
    return Counted(seen, cells)


def encode_counted(counted: Counted) -> bytes:
    """Return the entry of a key."""
    pieces = [_SEEN.pack(counted.seen)]
    for pane, cell in counted.cells.items():
        pieces += (_PANE.pack(pane, len(cell)), cell)
    return b"".join(pieces)


class CountWindowLogic:
    """Runs windows by number."""

    def __init__(self, key_columns: tuple[str, ...], window: CountWindow, contents: Contents) -> None:
        """A window ends at every multiple of the slide."""
        self._panes = Panes(window.size, window.slide, -window.size % window.slide)
        self._contents = contents
        self._names = CellNames(COUNTED)
        self._input = WindowRows(key_columns, None, contents)
        self._output = WindowOutput(key_columns, None, contents, says_why=False)

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Count rows, and fire the windows that they complete, in the order in which they do."""
        state = moment.state
        rows, schema = self._input.settled(batch, state)
        keys = self._input.keyed(rows)
        names = self._names.of(0, keys.keys, state)
        counted = [decode_counted(entry) for entry in state.read_many(names)]
        numbers = _numbered(keys.codes, np.array([one.seen for one in counted]))
        groups, codes, panes = _grouped(keys.codes, self._panes.pane_of(numbers))
        cells = [counted[code].cells.get(pane) for code, pane in zip(codes, panes, strict=True)]
        came = arrivals(rows.num_rows, self._contents.by_arrival, moment.now_us, state)
        added = self._contents.add(
            cells, GroupedRows(rows, groups, len(codes), came), [names[code] for code in codes], state
        )
        for code, pane, cell in zip(codes, panes, added, strict=True):
            counted[code].cells[pane] = cell
        completing = np.flatnonzero((numbers + 1) % self._panes.slide == 0)
        windows = (numbers[completing] + 1 - self._panes.size).tolist()
        whose = keys.codes[completing].tolist()
        made = self._fired(windows, whose, counted, names, keys.keys, schema, state)
        sizes = np.bincount(keys.codes, minlength=len(names)).tolist()
        for name, one, size in zip(names, counted, sizes, strict=True):
            self._keep(name, one, size, state)
        return made, None

    def advance(self, moment: Moment) -> Outputs:
        """Nothing becomes due by time; when the input has ended, what is left is forgotten."""
        state = moment.state
        if moment.watermark_us == END_OF_TIME:
            held = list(state.held(COUNTED))
            cells = [(cell, one.entry) for one in held for cell in decode_counted(one.value).cells.values()]
            self._contents.forget([cell for cell, _ in cells], [name for _, name in cells], state)
            names = [one.entry for one in held]
            state.delete_many(names)
            forget_long(state, names, COUNTED)
        return None, None

    def wake_us(self, moment: Moment) -> int | None:
        """Time is of no matter."""
        return None

    def _fired(
        self,
        windows: list[int],
        whose: list[int],
        counted: list[Counted],
        names: list[bytes],
        keys: list[Any],
        schema: pa.Schema,
        state: OperatorState,
    ) -> pa.RecordBatch | None:
        if not windows:
            return None
        cells, named, nth = [], [], []
        for number, (window, code) in enumerate(zip(windows, whose, strict=True)):
            for pane, cell in counted[code].cells.items():
                if window <= pane < window + self._panes.size:
                    cells.append(cell)
                    named.append(names[code])
                    nth.append(number)
        finished = self._contents.finish(cells, named, np.arange(len(cells)), runs(np.array(nth)), state)
        return self._output.counted([keys[code] for code in whose], finished, schema)

    def _keep(self, name: bytes, counted: Counted, added: int, state: OperatorState) -> None:
        """Write the entry of a key without the panes that no later window needs; a key with none left begins anew."""
        seen = counted.seen + added
        done_before = self._panes.done_before(seen)
        left = {pane: cell for pane, cell in counted.cells.items() if pane >= done_before}
        if len(left) < len(counted.cells):
            done = [cell for pane, cell in counted.cells.items() if pane < done_before]
            self._contents.forget(done, [name] * len(done), state)
        if left:
            state.put(name, encode_counted(Counted(seen, left)))
        else:
            state.delete(name)
            forget_long(state, [name], COUNTED)


def _numbered(codes: Codes, seen: Instants) -> Instants:
    """Return the number of each row among those of its key, given how many there were before."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(seen))
    numbers = np.empty(len(codes), dtype=np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers + seen[codes]


def _grouped(codes: Codes, panes: Instants) -> tuple[Indices, list[int], list[int]]:
    """Return the group of each row, and the key and pane of each group, in order of both."""
    order = np.lexsort((panes, codes))
    starts = runs(codes[order], panes[order])
    groups = np.empty(len(codes), dtype=np.intp)
    groups[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(codes)))
    return groups, codes[order[starts]].tolist(), panes[order[starts]].tolist()
