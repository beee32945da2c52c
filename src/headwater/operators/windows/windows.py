"""Windows: what is computed per key over stretches of time, over sessions, or over numbers of rows.

Three operators (aggregates, a user's function over the whole window, the best few rows) over three kinds of windows.
Here they are only configuration; `time_windows`, `sessions` and `count_windows` say when something is due, and the
contents (`aggregate_cells`, `kept_rows`) what is made of the rows.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headwater.model.errors import FlowError
from headwater.operators.base import TimedLogic, TimedOperator
from headwater.operators.columns.vectors import plain_type, row_type, window_type
from headwater.operators.functions import Form, UserFunction, WrongResult
from headwater.operators.windows.aggregate_cells import AggregateContents
from headwater.operators.windows.aggregates import result_of
from headwater.operators.windows.count_windows import CountWindowLogic
from headwater.operators.windows.row_windows import RANK, ApplyContents, TopKContents, check_rankable
from headwater.operators.windows.sessions import SessionLogic
from headwater.operators.windows.time_windows import TimeWindowLogic
from headwater.operators.windows.window_contents import Contents
from headwater.operators.windows.window_firing import Firing
from headwater.operators.windows.window_output import FIRING, WINDOW
from headwater.operators.windows.window_specs import Aggregate, CountWindow, SessionWindow, TimeWindow, WindowSpec

__all__ = [
    "Aggregate",
    "CountWindow",
    "SessionWindow",
    "TimeWindow",
    "WindowAggregate",
    "WindowApply",
    "WindowSpec",
    "WindowTopK",
]


@dataclass(frozen=True, kw_only=True)
class WindowOperator(TimedOperator):
    """What all windows have in common: whose they are, what they are, and when they fire besides at their end."""

    key_columns: tuple[str, ...]
    window: WindowSpec
    lateness_us: int = 0  # how long a window that has fired still takes rows, and fires again for them
    early_us: int | None = None  # fire what has new rows every so often, by the clock
    early_rows: int | None = None  # fire whenever so many rows have come since the last time

    def __post_init__(self) -> None:
        """Refuse firings that cannot be."""
        if self.lateness_us < 0:
            raise FlowError("the allowed lateness of a window cannot be less than zero")
        if (self.early_us is not None and self.early_us <= 0) or (self.early_rows is not None and self.early_rows <= 0):
            raise FlowError("a window fires early after some time or some rows, which have to be above zero")
        if isinstance(self.window, CountWindow) and self._firing.says_why:
            raise FlowError("a count window fires when it has its rows, and neither early nor late")
        if not isinstance(self.window, CountWindow) and self.window.time is None and self.lateness_us:
            raise FlowError("no row is late by the clock; allowed lateness is for windows over a column of event time")
        taken = [name for name in self._names_added if self._names_added.count(name) > 1]
        if taken:
            raise FlowError(f"a window would make two columns named {taken[0]!r}; give one of them another name")

    @property
    def ports(self) -> tuple[str, ...]:
        """What the windows yield, and the rows that came too late for all of theirs."""
        return ("out", "late")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def state_settings(self) -> Mapping[str, object]:
        """What is kept of a window, and for how long, and what is counted until it fires early."""
        return {
            "window": self.window,
            "lateness_us": self.lateness_us,
            "early_us": self.early_us,
            "early_rows": self.early_rows,
        }

    @property
    def time(self) -> str | None:
        """The column of event time; None if time is the clock's, or of no matter."""
        return None if isinstance(self.window, CountWindow) else self.window.time

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key, the time, and what is looked at."""
        needed = (*self.key_columns, *([self.time] if self.time is not None else []), *self._looked_at)
        return tuple(dict.fromkeys(needed))

    @property
    def needs_watermark(self) -> bool:
        """Event time has to be told how far it has come."""
        return self.time is not None

    @property
    def hold_us(self) -> int:
        """Rows whose time is the end of their window come out late by the allowed lateness at most."""
        return self.lateness_us

    def open(self) -> TimedLogic:
        """Return the logic for this kind of window."""
        match self.window:
            case TimeWindow():
                return TimeWindowLogic(self.key_columns, self.window, self._contents(), self._firing)
            case SessionWindow():
                return SessionLogic(self.key_columns, self.window, self._contents(), self._firing)
            case CountWindow():
                return CountWindowLogic(self.key_columns, self.window, self._contents())

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns that come out; refuse aggregates that the types of the input do not have."""
        known = inputs[0]
        if known is None:
            return None
        try:
            inner = self._inner_fields(known)
        except WrongResult as wrong:
            raise FlowError(f"{wrong}; take another column, or another type") from None
        if inner is None:
            return None
        time = None if self.time is None else known.field(self.time).type
        window = [] if isinstance(self.window, CountWindow) else [pa.field(WINDOW, window_type(time))]
        firing = [pa.field(FIRING, pa.string())] if self._firing.says_why else []
        return pa.schema([*window, *inner, *firing])

    def port_schema(self, port: str, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Late rows leave as they came."""
        return inputs[0] if port == "late" else self.output_schema(inputs)

    @property
    def _span_us(self) -> int:
        """How far before the end of its window a row may lie; of a session, at least."""
        match self.window:
            case TimeWindow(time=str()):
                return self.window.size_us
            case SessionWindow(time=str()):
                return self.window.gap_us
        return 0

    @property
    def _firing(self) -> Firing:
        return Firing(self.lateness_us, self.early_us, self.early_rows)

    @property
    def _names_added(self) -> tuple[str, ...]:
        """The columns that come out whatever the rows are."""
        window = () if isinstance(self.window, CountWindow) else (WINDOW,)
        return (*window, *self.key_columns, *((FIRING,) if self._firing.says_why else ()))

    @property
    def _looked_at(self) -> tuple[str, ...]:
        """The columns that the contents need."""
        return ()

    @abstractmethod
    def _contents(self) -> Contents:
        """Return what is made of the rows."""

    @abstractmethod
    def _inner_fields(self, known: pa.Schema) -> list[pa.Field] | None:
        """Return the columns between window and firing, or None where only running can tell."""

    def _key_fields(self, known: pa.Schema) -> list[pa.Field]:
        return [pa.field(name, plain_type(known.field(name).type)) for name in self.key_columns]


@dataclass(frozen=True, kw_only=True)
class WindowAggregate(WindowOperator):
    """Aggregates per window and key."""

    kind: ClassVar[str] = "window"
    aggregates: tuple[Aggregate, ...]

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Every aggregate has its place in what is kept, whatever the result is called."""
        kept = tuple((one.function, one.column, one.options) for one in self.aggregates)
        return {**super().state_settings, "aggregates": kept}

    def _contents(self) -> Contents:
        tumbles = not isinstance(self.window, SessionWindow) and not self.window.slides
        return AggregateContents(self.aggregates, combined=not tumbles)

    @property
    def _names_added(self) -> tuple[str, ...]:
        return (*super()._names_added, *(aggregate.name for aggregate in self.aggregates))

    @property
    def _looked_at(self) -> tuple[str, ...]:
        return tuple(aggregate.column for aggregate in self.aggregates if aggregate.column is not None)

    def _inner_fields(self, known: pa.Schema) -> list[pa.Field]:
        plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in known])
        made = [pa.field(aggregate.name, result_of(aggregate, plain).type) for aggregate in self.aggregates]
        return [*self._key_fields(known), *made]


@dataclass(frozen=True, kw_only=True)
class WindowApply(WindowOperator):
    """A user's function over all rows of a window of one key."""

    kind: ClassVar[str] = "window_apply"
    function: UserFunction
    form: Form
    schema: pa.Schema | None = None

    @property
    def hold_us(self) -> int:
        """Rows that keep their own times are older than the end of their window."""
        return self._span_us + self.lateness_us

    def _contents(self) -> Contents:
        return ApplyContents(self.function, self.form, self.schema, self._names_added)

    def _inner_fields(self, known: pa.Schema) -> list[pa.Field] | None:
        return None if self.schema is None else [*self._key_fields(known), *self.schema]


@dataclass(frozen=True, kw_only=True)
class WindowTopK(WindowOperator):
    """The rows of a window and key with the largest or smallest value of a column."""

    kind: ClassVar[str] = "window_top_k"
    k: int
    by: str
    largest: bool = True

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        super().__post_init__()
        if self.k <= 0:
            raise FlowError("top_k needs to keep at least one row")

    @property
    def hold_us(self) -> int:
        """Rows that keep their own times are older than the end of their window."""
        return self._span_us + self.lateness_us

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Rows that were not among the first are gone."""
        return {**super().state_settings, "k": self.k, "by": self.by, "largest": self.largest}

    def _contents(self) -> Contents:
        return TopKContents(self.k, self.by, self.largest, self._ranks)

    @property
    def _looked_at(self) -> tuple[str, ...]:
        return (self.by,)

    @property
    def _ranks(self) -> frozenset[str]:
        """The columns that are added to those of the rows."""
        return frozenset({RANK, *self._names_added} - set(self.key_columns))

    def _inner_fields(self, known: pa.Schema) -> list[pa.Field]:
        check_rankable(self.by, known, self._ranks)
        return [*(pa.field(field.name, row_type(field.type)) for field in known), pa.field(RANK, pa.int64())]
