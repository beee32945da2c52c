"""Windows of a fixed size over time, tumbling or sliding, by event time or by the clock.

State is one cell per pane and key. A window fires when time reaches its end: its panes are found by a scan of what lies
before that end, combined per key, and those that no later window needs are removed. With allowed lateness panes stay
for that much longer, and a row that comes after its window fired makes the window of its key fire again.

Where a pane outlives the firing of a window that it is part of, the state has to say how far windows have fired: one
entry of the instance's own, since others may be elsewhere in time. Instances whose keys come together must therefore
have come equally far, as they have if they were given the same watermark.
"""

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headwater.model.keys import KeyedRows
from headwater.model.time import BEGINNING_OF_TIME
from headwater.operators.base import Moment, Outputs
from headwater.operators.columns.cell_names import NO_CELLS, CellNames, FoundCells, any_long, cells_between
from headwater.operators.columns.long_keys import forget_long
from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.state import OperatorState
from headwater.operators.windows.pane_cache import KnownPanes, Span
from headwater.operators.windows.pane_firing import PaneFiring, Touched
from headwater.operators.windows.panes import Instants, Panes, runs, within_reach
from headwater.operators.windows.window_contents import PANES, Contents, Indices, arrivals
from headwater.operators.windows.window_firing import Firing
from headwater.operators.windows.window_output import ON_TIME, Fired, WindowOutput, together
from headwater.operators.windows.window_rows import Timely, WindowRows, earlier, time_reached
from headwater.operators.windows.window_specs import TimeWindow

_FIRED: Final = "fired"  # up to which instant windows have fired
_CROWDED_TURNS: Final = 1_000  # a million panes take half a second to read
_DENSE_MAX: Final = 16_384  # pairs of pane and key that are numbered by a table rather than by sorting


class TimeWindowLogic:
    """Runs windows of a fixed size."""

    def __init__(self, key_columns: tuple[str, ...], window: TimeWindow, contents: Contents, firing: Firing) -> None:
        """Prepare the arithmetic; nothing is remembered but what can be worked out again."""
        self._time = window.time
        self._panes = Panes(window.size_us, window.slide_us, window.offset_us)
        self._contents = contents
        self._lateness_us = firing.lateness_us
        self._tracks = self._panes.overlap or firing.lateness_us > 0  # panes outlive the firing of a window
        self._input = WindowRows(key_columns, window.time, contents)
        self._output = WindowOutput(key_columns, window.time, contents, says_why=firing.says_why)
        self._names = CellNames(PANES)
        self._besides = PaneFiring(firing, self._panes, contents, self._output)
        self._crowded = 0  # so many times more it is not tried to know all panes

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Add rows to their panes; fire windows early, or once more for rows that come late."""
        state, fired_us = moment.state, self._fired_us(moment.state)
        due = None
        if self._time is not None and self._tracks and moment.watermark_us > fired_us:
            due = self.advance(moment)[0]  # we were not told that the watermark has risen, or had no row to fire
            fired_us = self._note_fired(moment.watermark_us, state)
        closed_us = earlier(max(moment.watermark_us, fired_us), self._lateness_us)
        timely, late = self._input.timely(batch, self._panes.last_end, closed_us, max(moment.now_us, fired_us))
        if timely is None:
            return due, late
        settled, schema = self._input.settled(timely.rows, state)
        touched = self._add(timely._replace(rows=settled), moment)
        reached_us = max(time_reached(self._time, moment), fired_us)
        again = self._besides.fire_touched(touched, closed_us, reached_us, schema, moment)
        return together(due, again), late

    def advance(self, moment: Moment) -> Outputs:
        """Fire what has come to its end, and what is to fire early by now."""
        schema = self._input.recalled(moment.state)
        if schema is None:  # keys of another instance may come to us, whose windows have fired by now
            self._note_reached(moment)
            return None, None
        return together(self._fire_due(schema, moment), self._besides.fire_fresh(schema, moment)), None

    def wake_us(self, moment: Moment) -> int | None:
        """Return when the next window ends, or is to fire early, by the clock."""
        state = moment.state
        wanted = [] if (alarm_us := self._besides.alarm_us(state)) is None else [alarm_us]
        if self._time is None and (first := state.first_us(PANES)) is not None:
            wanted.append(self._panes.end_after(max(first, within_reach(self._fired_us(state)))))
        return min(wanted, default=None)

    def _fired_us(self, state: OperatorState) -> int:
        """Return up to which instant all windows have fired, where panes are kept longer than that."""
        kept = state.own(_FIRED) if self._tracks else None
        return BEGINNING_OF_TIME if kept is None else int.from_bytes(kept, "big", signed=True)

    def _note_fired(self, reached_us: int, state: OperatorState) -> int:
        state.keep_own(_FIRED, reached_us.to_bytes(8, "big", signed=True))
        return reached_us

    def _add(self, timely: Timely, moment: Moment) -> Touched:
        rows, state = timely.rows, moment.state
        keys = self._input.keyed(rows)
        groups, panes, codes = self._grouped(timely, keys)
        spans = _spans(panes)
        names = self._named(spans, codes, keys.keys, state)
        known = KnownPanes.taken(state)
        cells = state.read_many(names) if known is None else known.read(spans, names)
        came = arrivals(rows.num_rows, self._contents.by_arrival, moment.now_us, state)
        grouped = GroupedRows(rows, groups, len(names), came)
        added = self._contents.add(cells, grouped, names, state)
        state.put_many(names, added)
        if known is not None:
            known.put(spans, names, added)
            known.leave(state)
        return Touched(names, keys.keys, panes, codes, grouped)

    def _named(self, spans: list[Span], codes: Indices, keys: list[Any], state: OperatorState) -> list[bytes]:
        """Return the name of each group's cell; groups are in order of pane."""
        if len(spans) == 1 and spans[0][2] == len(keys):
            return self._names.of(spans[0][0], keys, state)
        listed = codes.tolist()
        return [
            name
            for pane, start, end in spans
            for name in self._names.of(pane, [keys[code] for code in listed[start:end]], state)
        ]

    def _grouped(self, timely: Timely, keys: KeyedRows) -> tuple[Indices, Instants, Indices]:
        """Return the group of each row, and for each group its pane and the code of its key."""
        count, slide = len(keys.keys), self._panes.slide
        first, last = self._panes.pane_at(timely.first_us), self._panes.pane_at(timely.last_us)
        if first == last:
            return keys.codes.astype(np.intp), np.full(count, first), np.arange(count)
        panes = self._panes.pane_of(timely.times)
        if self._panes.cut or (last - first) // slide * count > _DENSE_MAX:
            found, nth = np.unique(panes, return_inverse=True)
            present, groups = np.unique(nth * count + keys.codes, return_inverse=True)
            return groups, found[present // count], present % count
        combined = (panes - first) // slide * count + keys.codes
        present = np.flatnonzero(np.bincount(combined))
        number = np.empty(int(present[-1]) + 1, dtype=np.intp)
        number[present] = np.arange(len(present))
        return number[combined], first + present // count * slide, present % count

    def _fire_due(self, schema: pa.Schema, moment: Moment) -> pa.RecordBatch | None:
        """Fire the windows that end by now, in order of their ends, and remove the panes that are done with."""
        state, fired_us = moment.state, self._fired_us(moment.state)
        reached_us = time_reached(self._time, moment)
        last_us = self._panes.end_until(within_reach(reached_us))
        known = KnownPanes.taken(state)
        due = NO_CELLS
        if last_us > fired_us:
            known = known or self._learned(state)
            due = _before(last_us, known, state)
        made = self._fire_panes(due, fired_us, reached_us, schema, state) if due.names else None
        done_us = self._panes.done_before(within_reach(earlier(reached_us, self._lateness_us)))
        if known is not None:
            self._remove(known.drop(done_us), state)
            known.leave(state)
        else:
            due = _before(done_us, None, state) if self._lateness_us else due
            self._remove(due.before(done_us), state)
        self._note_reached(moment)
        return made

    def _note_reached(self, moment: Moment) -> None:
        reached_us = time_reached(self._time, moment)
        if self._tracks and reached_us > self._fired_us(moment.state):
            self._note_fired(reached_us, moment.state)

    def _learned(self, state: OperatorState) -> KnownPanes | None:
        """Get to know all panes, unless they were too many not long ago: finding that out means to read them all."""
        if self._crowded:
            self._crowded -= 1
            return None
        known = KnownPanes.learned(state, PANES)
        if known is None and state.remembers:
            self._crowded = _CROWDED_TURNS
        return known

    def _fire_panes(
        self, due: FoundCells, after_us: int, until_us: int, schema: pa.Schema, state: OperatorState
    ) -> pa.RecordBatch | None:
        """Fire the windows of these panes that end after one instant and until another."""
        index, windows = self._panes.windows_of(due.times, after_us, until_us)
        if not len(index):
            return None
        codes = due.ranks[index]
        if self._panes.overlap:  # else they lie in that order
            one_window = windows.min() == windows.max()  # each of its panes is in order: they only need merging
            order = np.argsort(codes, kind="stable") if one_window else np.lexsort((codes, windows))
            index, windows, codes = index[order], windows[order], codes[order]
        starts = runs(windows, codes)
        windows, firsts = windows[starts], [due.names[pane] for pane in index[starts].tolist()]
        finished = self._contents.finish(due.values, due.names, index, starts, state)
        self._besides.forget_fresh(windows, firsts, state)
        keys = self._names.keys_of(firsts, state)
        fired = Fired(keys, windows, windows + self._panes.size, [ON_TIME] * len(keys))
        return self._output.timed(fired, finished, schema)

    def _remove(self, done: FoundCells, state: OperatorState) -> None:
        if done.names:
            self._contents.forget(done.values, done.names, state)
            state.delete_many(done.names)
            if any_long(done.names):
                forget_long(state, done.names, PANES)


def _before(instant_us: int, known: KnownPanes | None, state: OperatorState) -> FoundCells:
    """Return the cells of panes before an instant."""
    if known is not None:
        return known.before(instant_us)
    return cells_between(state, PANES, BEGINNING_OF_TIME, instant_us)


def _spans(panes: Instants) -> list[Span]:
    """Return the panes of groups that are in order of pane, and where each begins and ends."""
    if int(panes[0]) == int(panes[-1]):
        return [(int(panes[0]), 0, len(panes))]
    starts = runs(panes)
    bounds = [*starts.tolist(), len(panes)]
    return [(pane, start, end) for pane, (start, end) in zip(panes[starts].tolist(), pairwise(bounds), strict=True)]
