"""Session windows: stretches of a key's rows with no gap between them, as Spark defines them.

A row alone is a session from its time to its time plus the gap. Two sessions of a key are one if the later begins at or
before the end of the earlier, so rows just a gap apart belong together (Spark's MergingSessionsIterator). A row is late
if its own session would have ended by the watermark, though it might fit into one that is still open.

All open sessions of a key are one entry, since a row may join two of them. A timer says when to look at a key:
one for each key, no later than its first session ends. Sessions grow all the time, so the timer is left where it stands
and set anew only when it goes off too early.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.model.entries import space_prefix
from headwater.model.keys import Codes, decode_key
from headwater.model.time import END_OF_TIME
from headwater.operators.base import Moment, Outputs
from headwater.operators.columns.cell_names import CellNames, suffix_of
from headwater.operators.columns.long_keys import forget_long
from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.state import EntryByTime, OperatorState
from headwater.operators.windows.panes import Instants, Number
from headwater.operators.windows.session_state import KeySessions, Session, decode_sessions, encode_sessions, merged
from headwater.operators.windows.window_contents import FRESH, SESSIONS, TIMERS, Contents, Indices, arrivals
from headwater.operators.windows.window_firing import Firing
from headwater.operators.windows.window_output import EARLY, LATE, ON_TIME, Fired, WindowOutput, together
from headwater.operators.windows.window_rows import Timely, WindowRows, earlier, time_reached
from headwater.operators.windows.window_specs import SessionWindow

_MARK: Final = b"\1"
_ALL_KEYS: Final = space_prefix(SESSIONS, 0)


class Firings(NamedTuple):
    """A session of a key that fires, and why."""

    end_us: int
    start_us: int
    name: bytes
    key: Any
    cell: bytes
    firing: int


class SessionLogic:
    """Runs session windows."""

    def __init__(self, key_columns: tuple[str, ...], window: SessionWindow, contents: Contents, firing: Firing) -> None:
        """Keep the configuration."""
        self._time = window.time
        self._gap_us = window.gap_us
        self._contents = contents
        self._firing = firing
        self._names = CellNames(SESSIONS)
        self._input = WindowRows(key_columns, window.time, contents)
        self._output = WindowOutput(key_columns, window.time, contents, says_why=firing.says_why)

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Add rows to sessions, which may begin, grow or become one by them."""
        state = moment.state
        closed_us = earlier(moment.watermark_us, self._firing.lateness_us)
        timely, late = self._input.timely(batch, self._end, closed_us, moment.now_us)
        if timely is None:
            return None, late
        settled, schema = self._input.settled(timely.rows, state)
        owned = self._add(timely._replace(rows=settled), moment)
        fires = self._fire_touched(owned, moment)
        self._keep(owned, state)
        return self._fired(fires, schema, state), late

    def advance(self, moment: Moment) -> Outputs:
        """Fire the sessions that have ended, and those that are to fire early by now."""
        schema = self._input.recalled(moment.state)
        if schema is None:
            return None, None
        due = self._fire_due(schema, moment)
        return together(due, self._fire_fresh(schema, moment)), None

    def wake_us(self, moment: Moment) -> int | None:
        """Return when the next session may end, or is to fire early, by the clock."""
        alarm_us = self._firing.alarm_us(moment.state)
        first_us = moment.state.first_us(TIMERS) if self._time is None else None
        return min((wanted for wanted in (alarm_us, first_us) if wanted is not None), default=None)

    def _end(self, instant: Number) -> Number:
        """Return where the session of a row alone would end."""
        return instant + self._gap_us

    def _add(self, timely: Timely, moment: Moment) -> list[KeySessions]:
        """Return the sessions of all keys that got rows, those that got some marked as touched."""
        rows, state = timely.rows, moment.state
        keys = self._input.keyed(rows)
        names = self._names.of(0, keys.keys, state)
        order, starts = self._stretches(timely.times, keys.codes)
        groups = np.empty(len(order), dtype=np.intp)
        sizes = np.diff(starts, append=len(order))
        groups[order] = np.repeat(np.arange(len(starts)), sizes)
        codes = keys.codes[order[starts]].tolist()
        entries = state.read_many(names)
        came = arrivals(rows.num_rows, self._contents.by_arrival, moment.now_us, state)
        stretches = GroupedRows(rows, groups, len(starts), came)
        cells = self._contents.add([None] * len(starts), stretches, [names[code] for code in codes], state)
        owned = [decode_sessions(*one) for one in zip(names, keys.keys, entries, strict=True)]
        begins = timely.times[order[starts]].tolist()
        ends = (timely.times[order[starts + sizes - 1]] + self._gap_us).tolist()
        for code, start_us, end_us, size, cell in zip(codes, begins, ends, sizes.tolist(), cells, strict=True):
            owned[code].sessions.append(Session(start_us, end_us, size, False, [cell], is_touched=True))
        for one in owned:
            one.sessions = merged(one.sessions)
        self._combine([session for one in owned for session in one.sessions], state)
        return owned

    def _stretches(self, times: Instants, codes: Codes) -> tuple[Indices, Indices]:
        """Return the rows in order of key and time, and where in that order a new session begins."""
        order = np.lexsort((times, codes))
        sorted_times, sorted_codes = times[order], codes[order]
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = (sorted_codes[1:] != sorted_codes[:-1]) | (np.diff(sorted_times) > self._gap_us)
        return order, np.flatnonzero(begins)

    def _combine(self, sessions: list[Session], state: OperatorState) -> None:
        """Leave every session with one cell."""
        joined = [session for session in sessions if len(session.cells) > 1]
        if joined:
            counts = [len(session.cells) for session in joined]
            starts = np.cumsum([0, *counts[:-1]])
            cells = self._contents.combine([cell for session in joined for cell in session.cells], starts, state)
            for session, cell in zip(joined, cells, strict=True):
                session.cells = [cell]

    def _fire_touched(self, owned: list[KeySessions], moment: Moment) -> list[Firings]:
        """Fire the sessions that got rows too late for their end, or enough of them before it."""
        reached_us, fires = time_reached(self._time, moment), []
        for one in owned:
            for session in one.sessions:
                if not session.is_touched:
                    continue
                session.has_fired = session.end_us <= reached_us
                if session.has_fired or self._firing.enough(session.fresh):
                    fires.append(_firing(one, session, LATE if session.has_fired else EARLY))
                    session.fresh = 0
                elif self._firing.early_us is not None:
                    moment.state.put(one.name_in(FRESH, 0), _MARK)
                    self._firing.set_alarm(moment)
        return fires

    def _fire_due(self, schema: pa.Schema, moment: Moment) -> pa.RecordBatch | None:
        """Fire the sessions of the keys whose timers have gone off, if they have ended."""
        state, reached_us = moment.state, time_reached(self._time, moment)
        before_us = END_OF_TIME if reached_us == END_OF_TIME else reached_us + 1
        timers = list(state.held(TIMERS, before_us=before_us))
        owned = self._read(timers, state)
        fires, gone = [], []
        for one in owned:
            for session in one.sessions:
                if not session.has_fired and session.end_us <= reached_us:
                    session.has_fired, session.fresh = True, 0
                    fires.append(_firing(one, session, ON_TIME))
            done = [session for session in one.sessions if self._is_done(session, reached_us)]
            gone += [(one.name, session.cells[0]) for session in done]
            one.sessions = [session for session in one.sessions if not self._is_done(session, reached_us)]
        made = self._fired(fires, schema, state)
        self._contents.forget([cell for _, cell in gone], [name for name, _ in gone], state)
        self._keep(owned, state, anew=True)
        return made

    def _is_done(self, session: Session, reached_us: int) -> bool:
        return session.has_fired and session.end_us <= earlier(reached_us, self._firing.lateness_us)

    def _fire_fresh(self, schema: pa.Schema, moment: Moment) -> pa.RecordBatch | None:
        """Fire all open sessions that got rows since they fired, if the alarm rings."""
        if not self._firing.rings(moment):
            return None
        state = moment.state
        marks = list(state.held(FRESH))
        state.delete_many([mark.entry for mark in marks])
        owned = self._read(marks, state)
        fires = []
        for one in owned:
            for session in one.sessions:
                if session.fresh and not session.has_fired:
                    session.fresh = 0
                    fires.append(_firing(one, session, EARLY))
        self._keep([one for one in owned if one.sessions], state)
        return self._fired(fires, schema, state)

    def _read(self, found: Sequence[EntryByTime], state: OperatorState) -> list[KeySessions]:
        """Return the sessions of the keys of these entries."""
        names = [_ALL_KEYS + suffix_of(one.entry) for one in found]
        keys = [decode_key(one.key) for one in found]
        return [decode_sessions(*one) for one in zip(names, keys, state.read_many(names), strict=True)]

    def _keep(self, owned: list[KeySessions], state: OperatorState, *, anew: bool = False) -> None:
        """Write the sessions of keys; a key without any is gone, with its timer and marks.

        `anew` sets the timers of all of them. Otherwise one that goes off too early stays where it is.
        """
        gone = []
        for one in owned:
            self._set_timer(one, state, anew=anew)
            if one.sessions:
                state.put(one.name, encode_sessions(one))
            else:
                gone.append(one.name)
                state.delete(one.name)
                if self._firing.early_us is not None:
                    state.delete(one.name_in(FRESH, 0))
        forget_long(state, gone, SESSIONS)

    def _set_timer(self, one: KeySessions, state: OperatorState, *, anew: bool) -> None:
        due_us = min([session.due_us(self._firing.lateness_us) for session in one.sessions], default=None)
        before_us = one.timer_us
        if due_us is not None and before_us is not None and (before_us == due_us or (before_us < due_us and not anew)):
            return
        if before_us is not None:
            state.delete(one.name_in(TIMERS, before_us))
        if due_us is not None:
            state.put(one.name_in(TIMERS, due_us), _MARK)
        one.timer_us = due_us

    def _fired(self, fires: Sequence[Firings], schema: pa.Schema, state: OperatorState) -> pa.RecordBatch | None:
        """Return the rows of sessions that fire, in order of their ends, then of key."""
        if not fires:
            return None
        ordered = sorted(fires, key=lambda one: one[:3])
        each = np.arange(len(ordered))
        finished = self._contents.finish(
            [one.cell for one in ordered], [one.name for one in ordered], each, each, state
        )
        starts = np.array([one.start_us for one in ordered])
        ends = np.array([one.end_us for one in ordered])
        fired = Fired([one.key for one in ordered], starts, ends, [one.firing for one in ordered])
        return self._output.timed(fired, finished, schema)


def _firing(owned: KeySessions, session: Session, firing: int) -> Firings:
    return Firings(session.end_us, session.start_us, owned.name, owned.key, session.cells[0], firing)
