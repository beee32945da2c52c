"""What a processor expects of PySpark itself: its rows, its errors, and its words for time.

A processor that derives from PySpark's class has loaded PySpark before it comes here, and then gets PySpark's own rows
and errors, so that its `isinstance` and `except` work. Nothing here loads PySpark, which is Spark's door: for a
processor that only has the right methods, small classes of the same shape stand in.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


class StateError(RuntimeError):
    """A processor used its state or timers in a way that is not allowed, and PySpark's own error is not loaded."""


def state_error(message: str) -> Exception:
    """Return the error that PySpark would raise."""
    made: Exception = _loaded("pyspark.errors", "PySparkRuntimeError", StateError)(message)
    return made


def row_maker(names: Sequence[str]) -> Callable[..., Any]:
    """Return what makes a row of the values of these columns."""
    spark_row = _loaded("pyspark.sql.types", "Row", None)
    if spark_row is not None:
        maker: Callable[..., Any] = spark_row(*names)
        return maker
    fields = tuple(names)

    def make(*values: Any) -> PlainRow:
        row = PlainRow(values)
        row.__fields__ = fields
        return row

    return make


def _loaded(module: str, name: str, otherwise: Any) -> Any:
    return getattr(sys.modules.get(module), name, otherwise)


class PlainRow(tuple[Any, ...]):
    """A tuple whose fields have names, as PySpark's `Row`."""

    __fields__: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        """Return a field by its name."""
        if name.startswith("__") or name not in self.__fields__:
            raise AttributeError(name)
        return self[self.__fields__.index(name)]

    def __getitem__(self, place: Any) -> Any:
        """Return a field by its place or its name."""
        return super().__getitem__(self.__fields__.index(place) if isinstance(place, str) else place)

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Return the fields by name."""
        values = [_without_rows(value) for value in self] if recursive else list(self)
        return dict(zip(self.__fields__, values, strict=True))

    def __repr__(self) -> str:
        """Write it as PySpark does."""
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.__fields__, self, strict=True))})"


def _without_rows(value: Any) -> Any:
    if isinstance(value, PlainRow):
        return value.asDict(True)
    if isinstance(value, list):
        return [_without_rows(one) for one in value]
    return {name: _without_rows(one) for name, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class TimerValues:
    """The two clocks as a processor is told them; -1 where the processor asked for no time."""

    now_ms: int = -1
    watermark_ms: int = -1

    def getCurrentProcessingTimeInMs(self) -> int:  # noqa: N802 - PySpark's name
        """Return the processing time of this turn."""
        return self.now_ms

    def getCurrentWatermarkInMs(self) -> int:  # noqa: N802 - PySpark's name
        """Return how far event time has come."""
        return self.watermark_ms


@dataclass(frozen=True, slots=True)
class ExpiredTimerInfo:
    """Which timer has expired."""

    expiry_ms: int

    def getExpiryTimeInMs(self) -> int:  # noqa: N802 - PySpark's name
        """Return when it was to fire."""
        return self.expiry_ms
