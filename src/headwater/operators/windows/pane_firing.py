"""Firing of time windows besides at their end: for new rows, for late rows, and when the alarm rings.

Which windows have new rows has to be remembered only where some of them do not fire at once: one small entry per window
and key, gone as soon as it fires.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.entries import space_prefix
from headwater.model.keys import decode_key
from headwater.model.time import END_OF_TIME
from headwater.operators.base import Moment
from headwater.operators.columns.cell_names import cell_name, ranks_of, suffix_of
from headwater.operators.columns.vectors import GroupedRows, Mask
from headwater.operators.state import OperatorState
from headwater.operators.windows.panes import Instants, Panes, runs
from headwater.operators.windows.window_contents import FRESH, PANES, Contents, Indices
from headwater.operators.windows.window_firing import Firing
from headwater.operators.windows.window_output import EARLY, LATE, Fired, WindowOutput

_READ_PANES_MAX: Final = 64  # of a window one by one; which of more are there is found by a scan


class Touched(NamedTuple):
    """What the rows of a batch fell into: groups, each a pane of a key."""

    names: list[bytes]  # of the groups' cells
    keys: list[Any]
    panes: Instants  # of each group
    codes: Indices  # the key of each group
    rows: GroupedRows


class PaneFiring:
    """Fires windows that stay open."""

    def __init__(self, firing: Firing, panes: Panes, contents: Contents, output: WindowOutput) -> None:
        """Fire as `firing` says."""
        self._firing = firing
        self._panes = panes
        self._contents = contents
        self._output = output

    def fire_touched(
        self, touched: Touched, closed_us: int, reached_us: int, schema: pa.Schema, moment: Moment
    ) -> pa.RecordBatch | None:
        """Fire the windows that got rows, if rows are what they fire for."""
        if not self._firing.says_why:
            return None
        index, windows = self._panes.windows_of(touched.panes, closed_us, END_OF_TIME)
        ranks = ranks_of([suffix_of(name) for name in touched.names])[index]
        order = np.lexsort((ranks, windows))
        windows, index = windows[order], index[order]
        starts = runs(windows, ranks[order])
        sizes = np.add.reduceat(touched.rows.sizes[index], starts)
        windows, groups = windows[starts], index[starts].tolist()
        suffixes = [suffix_of(touched.names[group]) for group in groups]
        late: Mask = windows + self._panes.size <= reached_us
        fires = np.flatnonzero(late | self._is_early(windows, suffixes, sizes, late, moment))
        return self._fire(
            windows[fires],
            [suffixes[one] for one in fires.tolist()],
            [touched.keys[touched.codes[groups[one]]] for one in fires.tolist()],
            np.where(late[fires], LATE, EARLY).tolist(),
            schema,
            moment.state,
        )

    def fire_fresh(self, schema: pa.Schema, moment: Moment) -> pa.RecordBatch | None:
        """Fire all windows that got rows since they fired, if the alarm rings."""
        if not self._firing.rings(moment):
            return None
        fresh = list(moment.state.held(FRESH))
        moment.state.delete_many([one.entry for one in fresh])
        return self._fire(
            np.array([one.time_us for one in fresh], dtype=np.int64),
            [suffix_of(one.entry) for one in fresh],
            [decode_key(one.key) for one in fresh],
            [EARLY] * len(fresh),
            schema,
            moment.state,
        )

    def forget_fresh(self, windows: Instants, names: Sequence[bytes], state: OperatorState) -> None:
        """Forget the new rows of windows that fire at their end, by the names of cells of theirs."""
        if self._firing.counts_rows:
            firing = zip(windows.tolist(), names, strict=True)
            state.delete_many([cell_name(FRESH, window, suffix_of(name)) for window, name in firing])

    def alarm_us(self, state: OperatorState) -> int | None:
        """Return when windows with new rows are to fire, by the clock."""
        return self._firing.alarm_us(state)

    def _is_early(
        self, windows: Instants, suffixes: list[bytes], sizes: npt.NDArray[np.int64], late: Mask, moment: Moment
    ) -> Mask:
        """Return which windows have got enough rows since they fired; remember how many the others got."""
        firing, state = self._firing, moment.state
        if not firing.counts_rows:
            return np.full(len(windows), firing.is_early)
        names = [cell_name(FRESH, *one) for one in zip(windows.tolist(), suffixes, strict=True)]
        had = [int.from_bytes(kept or b"", "big") for kept in state.read_many(names)]
        fresh = [before + size for before, size in zip(had, sizes.tolist(), strict=True)]
        fires = np.array([firing.enough(rows) for rows in fresh])
        resting = np.flatnonzero(~(fires | late)).tolist()
        gone = np.flatnonzero((fires | late) & (np.array(had) > 0)).tolist()
        state.delete_many([names[one] for one in gone])
        state.put_many([names[one] for one in resting], [fresh[one].to_bytes(8, "big") for one in resting])
        if resting:
            firing.set_alarm(moment)
        return fires

    def _fire(
        self,
        windows: Instants,
        suffixes: list[bytes],
        keys: Sequence[Any],
        firings: Sequence[int],
        schema: pa.Schema,
        state: OperatorState,
    ) -> pa.RecordBatch | None:
        """Fire windows of keys, which stay as they are."""
        if not len(windows):
            return None
        cells, names, starts = self._cells_of(windows.tolist(), suffixes, state)
        finished = self._contents.finish(cells, names, np.arange(len(cells)), starts, state)
        return self._output.timed(Fired(keys, windows, windows + self._panes.size, firings), finished, schema)

    def _cells_of(
        self, windows: list[int], suffixes: list[bytes], state: OperatorState
    ) -> tuple[list[bytes], list[bytes], Indices]:
        """Return the cells of windows of keys, all in a row, their names, and where each window's begin."""
        prefixes = {window: self._prefixes(window, state) for window in dict.fromkeys(windows)}
        wanted = [
            (nth, prefix + suffix)
            for nth, (window, suffix) in enumerate(zip(windows, suffixes, strict=True))
            for prefix in prefixes[window]
        ]
        found = state.read_many([name for _, name in wanted])
        there = [(nth, name, cell) for (nth, name), cell in zip(wanted, found, strict=True) if cell is not None]
        starts = runs(np.array([nth for nth, _, _ in there]))
        return [cell for _, _, cell in there], [name for _, name, _ in there], starts

    def _prefixes(self, window: int, state: OperatorState) -> list[bytes]:
        """Return what the names of the panes of a window begin with."""
        panes = self._panes.panes_of(window) if self._panes.per_window <= _READ_PANES_MAX else None
        if panes is None:
            held = state.held(PANES, window, window + self._panes.size)
            panes = list(dict.fromkeys(one.time_us for one in held))
        return [space_prefix(PANES, pane) for pane in panes]
