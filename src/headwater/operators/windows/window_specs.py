"""What a window is and what is computed over it: plain frozen data, which a flow, a worker and the twin all read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headwater.model.errors import FlowError

FUNCTIONS: Final = frozenset(
    {
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "var_samp",
        "var_pop",
        "stddev_samp",
        "stddev_pop",
        "first",
        "last",
        "approx_count_distinct",
        "approx_percentile",
        "collect_list",
        "collect_set",
    }
)


@dataclass(frozen=True)
class TimeWindow:
    """Windows of a fixed size, one beginning every `slide_us`: tumbling if that is the size, else sliding."""

    time: str | None  # the column of event time; None: the clock
    size_us: int
    slide_us: int
    offset_us: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no window."""
        if self.size_us <= 0 or self.slide_us <= 0:
            raise FlowError("a window needs a size and a slide above zero")
        if self.slide_us > self.size_us:
            raise FlowError("the slide of a window must not exceed its size, or rows between two windows would be lost")
        if abs(self.offset_us) >= self.slide_us:
            raise FlowError("the start of a window must be less than its slide")

    @property
    def slides(self) -> bool:
        """Whether windows overlap."""
        return self.slide_us < self.size_us


@dataclass(frozen=True)
class SessionWindow:
    """Windows that last as long as no gap between two rows of a key reaches `gap_us`."""

    time: str | None  # the column of event time; None: the clock
    gap_us: int

    def __post_init__(self) -> None:
        """Refuse what is no gap."""
        if self.gap_us <= 0:
            raise FlowError("a session window needs a gap above zero")


@dataclass(frozen=True)
class CountWindow:
    """The last `size` rows of a key, after every `slide` rows; tumbling if both are the same."""

    size: int
    slide: int

    def __post_init__(self) -> None:
        """Refuse what is no number of rows."""
        if self.size <= 0 or self.slide <= 0:
            raise FlowError("a count window needs a size and a slide of at least one row")
        if self.slide > self.size:
            raise FlowError("the slide of a count window must not exceed its size, or rows would be lost")

    @property
    def slides(self) -> bool:
        """Whether windows overlap."""
        return self.slide < self.size


WindowSpec = TimeWindow | SessionWindow | CountWindow


@dataclass(frozen=True)
class Aggregate:
    """One value per window and key: a function over a column, and what the result is called."""

    function: str
    column: str | None
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a function that does not exist, and one that lacks its column."""
        if self.function not in FUNCTIONS:
            raise FlowError(f"there is no aggregate {self.function!r}; there are: {', '.join(sorted(FUNCTIONS))}")
        if self.column is None and self.function != "count":
            raise FlowError(f"the aggregate {self.function} needs a column")

    def alias(self, name: str) -> "Aggregate":
        """Return the same under another name."""
        return replace(self, name=name)

    @property
    def option(self) -> Mapping[str, Any]:
        """The options by name."""
        return dict(self.options)
