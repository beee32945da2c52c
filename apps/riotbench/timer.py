"""The timer that makes TRAIN train: rows that say when, and on the rows of which stretch of event time.

The benchmark's timer files begin where the data sets do. Those of FIT and GRID go through the data minute by minute,
that of CITY looks at the begin of every hour, that of TAXI at that of every day. How much of it is trained on is here
as for the models that come with the benchmark, to judge by their names: 10 seconds of CITY, 864 of TAXI, a fifth of one
of FIT. The timer files themselves ask for 1,000 seconds of CITY (later 100), and for whole minutes of FIT.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import headwater as hw

from .tables import begin_ms

TIMER_SCHEMA: Final = pa.schema(  # as the header of the timer files has it
    [
        ("msgId", pa.int64()),
        ("timestamp", pa.int64()),  # when the timer goes off, in seconds
        ("rowstart", pa.int64()),  # event time in milliseconds: from here on,
        ("rowend", pa.int64()),  # and up to but without this
    ]
)

FIRST_S: Final = 1_443_033_000


@dataclass(frozen=True)
class _Rhythm:
    """When a timer goes off, and what it asks for."""

    every_s: int
    step_ms: int  # from one stretch to the next
    span_ms: int
    file: str


_RHYTHMS: Final[Mapping[str, _Rhythm]] = {
    "city": _Rhythm(120, 3_600_000, 10_000, "sys/inputFileForTimerSpout-CITY.csv"),
    "taxi": _Rhythm(120, 86_400_000, 864_000, "taxi/inputFileForTimerSpout-TAXI.csv"),
    "fit": _Rhythm(60, 60_000, 200, "fit/inputFileForTimerSpout-FIT.csv"),
    "grid": _Rhythm(60, 60_000, 60_000, "grid/inputFileForTimerSpout-GRID.csv"),
}


@dataclass(frozen=True)
class MadeTimer:
    """Goes off as the benchmark's timers do, for ever."""

    dataset: str
    span_ms: int = 0  # how long a stretch is; 0: as for the benchmark's models

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        rhythm = _RHYTHMS[self.dataset]
        numbers = np.arange(first, first + count)
        starts = begin_ms(self.dataset) + numbers * rhythm.step_ms
        columns = [numbers + 1, FIRST_S + numbers * rhythm.every_s, starts, starts + (self.span_ms or rhythm.span_ms)]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=TIMER_SCHEMA)


def timer_file(dataset: str, data: Path) -> Path:
    """Return the real timer file of a data set."""
    path = data / _RHYTHMS[dataset].file
    if not path.is_file():
        raise hw.ConfigError(f"there is no file {path}, which says when to train on {dataset} (docs/data.md)")
    return path
