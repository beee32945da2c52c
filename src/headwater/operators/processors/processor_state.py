"""The handle of PySpark's stateful processors: where variables come from and timers go, for the key being handled.

A processor gets its handle once, in `init`, and keeps it and the variables it asked for. The engine lays a desk before
them for each call and says which key is being handled. What PySpark refuses is refused with PySpark's error and words.
"""

# ruff: noqa: N802, N803 - PySpark's names

import operator
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from headwater.model.entries import space_prefix
from headwater.operators.processors.processor_entries import (
    ELEMENTS,
    EXPIRIES,
    LISTS,
    MAPS,
    PRESENT,
    TIMERS,
    TIMERS_OF_KEY,
    VALUES,
    CallEntries,
    is_hashed,
    number_bytes,
    number_of,
    place_of,
    prefix_of,
    range_of,
)
from headwater.operators.processors.processor_maps import MapState
from headwater.operators.processors.processor_variables import (
    Here,
    ListState,
    ValueState,
    Variable,
    elements_of,
    is_alive,
    span_bytes,
    span_of,
)
from headwater.operators.processors.spark_names import state_error
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.processors.spark_values import RowCodec

_OF_KIND: Final = {"Value": (VALUES,), "List": (LISTS, ELEMENTS), "Map": (MAPS,)}
_LIMIT_MS: Final = 1 << 63
_V = TypeVar("_V", bound=Variable)


class ProcessorPhase(Enum):
    """What a processor may do: declare variables in `init`, use them and timers while rows and timers are handled."""

    INIT = "init"
    RUNNING = "running"
    ENDING = "ending"  # the input has ended: timers that have not fired fire, new ones never will
    CLOSED = "closed"


class Timer(NamedTuple):
    """A timer that is registered."""

    expiry_ms: int
    key: bytes  # as `encode_key` makes it


class ProcessorHandle:
    """A processor's way to its state and its timers."""

    def __init__(self, time_mode: str) -> None:
        """Be ready for `init`."""
        self.phase = ProcessorPhase.INIT
        self._time_mode = time_mode
        self._here = Here()
        self._variables: dict[tuple[str, str], Variable] = {}
        self._names: dict[int, str] = {}  # by place, to find two names that lead to the same

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:
        """Return a variable that holds one value for each key."""
        doing = "initializing value state"
        ttl_ms = self._ttl_ms(doing, stateName, ttlDurationMs)
        codec = _codec(schema, f"state {stateName!r}")
        return self._declared(doing, ValueState(self._here, stateName, codec, ttl_ms))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:
        """Return a variable that holds a list for each key."""
        doing = "initializing list state"
        ttl_ms = self._ttl_ms(doing, stateName, ttlDurationMs)
        codec = _codec(schema, f"state {stateName!r}")
        return self._declared(doing, ListState(self._here, stateName, codec, ttl_ms))

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MapState:
        """Return a variable that holds a map for each key."""
        doing = "initializing map state"
        ttl_ms = self._ttl_ms(doing, stateName, ttlDurationMs)
        keys, values = (
            _codec(userKeySchema, f"a key of state {stateName!r}"),
            _codec(valueSchema, f"state {stateName!r}"),
        )
        return self._declared(doing, MapState(self._here, stateName, keys, values, ttl_ms))

    def deleteIfExists(self, stateName: str) -> None:
        """Forget a variable that an earlier version of the processor declared, with what it holds for all keys."""
        self._refuse_unless("deleting state", ProcessorPhase.INIT)
        desk = self._at_desk("deleting state")
        self._claim("deleting state", stateName)
        for kind, spaces in _OF_KIND.items():
            variable = self._variables.pop((kind, stateName), None)
            if variable is not None:
                variable.deleted = True
            for space in spaces:
                for found in desk.state.held(space, *range_of(place_of(stateName))):
                    desk.delete(found.entry)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Let `handleExpiredTimer` be called for the key at an instant; once only, however often it is registered."""
        desk = self._for_timers("register timer")
        expiry_ms = _checked_ms("register timer", expiryTimestampMs)
        if self.phase is ProcessorPhase.ENDING:
            return
        by_time, prefix = self._timer_entries(expiry_ms)
        desk.put(by_time, PRESENT + self._here.key if is_hashed(self._here.part) else PRESENT)
        desk.put_under(prefix, number_bytes(expiry_ms), PRESENT)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Forget a timer of the key, if there is one at this instant."""
        desk = self._for_timers("deleting timer")
        expiry_ms = _checked_ms("deleting timer", expiryTimestampMs)
        by_time, prefix = self._timer_entries(expiry_ms)
        desk.delete(by_time)
        desk.delete(prefix + number_bytes(expiry_ms))

    def listTimers(self) -> Iterator[int]:
        """Return when the key's timers expire, the earliest first; the one that is being handled is among them."""
        desk = self._for_timers("listing timers")
        return iter([number_of(rest) for rest, _ in desk.under(prefix_of(TIMERS_OF_KEY, 0, self._here.part))])

    def lay(self, desk: CallEntries, now_ms: int) -> None:
        """Begin a call."""
        self._here.desk, self._here.now_ms = desk, now_ms

    def turn_to(self, part: bytes, key: bytes) -> None:
        """Handle one key from here on."""
        self._here.part, self._here.key = part, key

    def clear_away(self) -> None:
        """End a call."""
        self._here.desk, self._here.part, self._here.key = None, b"", b""

    def entries(self, parts: Iterable[bytes]) -> list[bytes]:
        """Return the entries of these keys that are worth reading at once: the values, and how far the lists go."""
        known = [one for one in self._variables.values() if isinstance(one, ValueState | ListState)]
        return [variable.entry(part) for part in parts for variable in known]

    def _timer_entries(self, expiry_ms: int) -> tuple[bytes, bytes]:
        part = self._here.part
        return space_prefix(TIMERS, expiry_ms) + part, prefix_of(TIMERS_OF_KEY, 0, part)

    def _declared(self, doing: str, variable: _V) -> _V:
        self._refuse_unless(doing, ProcessorPhase.INIT)
        self._claim(doing, variable.name)
        known = self._variables.setdefault((variable.kind, variable.name), variable)
        if known is not variable:
            raise state_error(f"Error {doing}: {variable.kind} state {variable.name} already exists")
        return variable

    def _claim(self, doing: str, name: str) -> None:
        other = self._names.setdefault(place_of(name), name)
        if other != name:
            raise state_error(f"Error {doing}: {name} and {other} cannot be told apart; give one another name")

    def _ttl_ms(self, doing: str, name: str, given: int | None) -> int:
        ttl_ms = 0 if given is None else operator.index(given)
        if ttl_ms and self._time_mode != "processingtime":
            raise state_error(
                f"Error {doing}: {name} has a time to live, which needs timeMode processingtime, not {self._time_mode}"
            )
        if ttl_ms < 0:
            raise state_error(f"Error {doing}: the time to live of {name} must be greater than zero, not {ttl_ms} ms")
        return ttl_ms

    def _for_timers(self, doing: str) -> CallEntries:
        if self._time_mode == "none":
            raise state_error(f"Error {doing}: timers need timeMode processingtime or eventtime, not none")
        self._refuse_unless(doing, ProcessorPhase.RUNNING, ProcessorPhase.ENDING)
        return self._at_desk(doing, for_a_key=True)

    def _refuse_unless(self, doing: str, *phases: ProcessorPhase) -> None:
        if self.phase not in phases:
            raise state_error(f"Error {doing}: this cannot be done while the processor is in phase {self.phase.value}")

    def _at_desk(self, doing: str, *, for_a_key: bool = False) -> CallEntries:
        if self._here.desk is None or (for_a_key and not self._here.part):
            raise state_error(f"Error {doing}: no key is being handled")
        return self._here.desk


def due_timers(desk: CallEntries, until_ms: int | None) -> list[Timer]:
    """Return the timers that have expired by an instant, or all, the earliest first."""
    held = desk.state.held(TIMERS) if until_ms is None else desk.state.held(TIMERS, before_us=until_ms + 1)
    return [Timer(found.time_us, found.value[1:] or found.key) for found in held]


def forget_expired(desk: CallEntries, now_ms: int) -> None:
    """Remove what has outlived its time to live."""
    due = list(desk.state.held(EXPIRIES, before_us=now_ms + 1))
    desk.fetch(found.value for found in due)
    for found in due:
        desk.delete(found.entry)
        stored = desk.read(found.value)
        if stored is not None:
            _REMOVE[found.value[0]](desk, found.value, stored, now_ms)


def _remove_value(desk: CallEntries, entry: bytes, stored: bytes, now_ms: int) -> None:
    if not is_alive(stored, now_ms):
        desk.delete(entry)


def _remove_elements(desk: CallEntries, entry: bytes, stored: bytes, now_ms: int) -> None:
    """Remove a list's elements from its beginning up to the first that is alive: they expire in order."""
    first, end, latest_ms = span_of(stored)
    elements = elements_of(entry, (first, end, 0))
    for element, kept in zip(elements, desk.read_many(elements), strict=True):
        if is_alive(kept, now_ms):
            break
        desk.delete(element)
        first += 1
    if first < end:
        desk.put(entry, span_bytes((first, end, latest_ms)))
    else:
        desk.delete(entry)


_REMOVE: Final[dict[int, Callable[[CallEntries, bytes, bytes, int], None]]] = {
    VALUES: _remove_value,
    MAPS: _remove_value,
    LISTS: _remove_elements,
}


def _codec(schema: Any, owner: str) -> RowCodec:
    return RowCodec(arrow_schema(schema), owner)


def _checked_ms(doing: str, given: int) -> int:
    expiry_ms = operator.index(given)
    if not -_LIMIT_MS <= expiry_ms < _LIMIT_MS - 1:
        raise state_error(f"Error {doing}: {expiry_ms} is no time in milliseconds")
    return expiry_ms
