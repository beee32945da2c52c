"""Linear Road's input: lines of 15 whole numbers, of which type 0 is the position report of a car."""

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

SAMPLE: Final = Path("linear_road") / "datafile20seconds.dat"  # the first 20 seconds of the original input

FIELDS: Final = ("type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos")  # then six of other types
FIELD_COUNT: Final = 15
POSITION_REPORT: Final = 0

SEGMENTS: Final = 100
SEGMENT_FEET: Final = 5_280
ROAD_FEET: Final = SEGMENTS * SEGMENT_FEET
ENTRY: Final = 0  # lanes
EXIT: Final = 4
MINUTE: Final = 60  # seconds

REPORT: Final = pa.schema([*((name, pa.int64()) for name in FIELDS[1:]), ("at", pa.timestamp("us", "UTC"))])

_FIRST_AND_LAST: Final = {
    "time": (0, 2**31),
    "vid": (0, 2**62),
    "spd": (0, 100),
    "xway": (0, 2**31),
    "lane": (ENTRY, EXIT),
    "dir": (0, 1),
    "seg": (0, SEGMENTS - 1),
    "pos": (0, ROAD_FEET - 1),
}

Whole = npt.NDArray[np.int64]


def real_lines(data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
    """Read the sample of the original input."""
    if not (data / SAMPLE).is_file():
        raise hw.ConfigError(f"there is no file {data / SAMPLE}; Linear Road reads its records there (docs/data.md)")
    return hw.read.text(data / SAMPLE, rate=rate, loop=loop, bad_lines="skip", name="input")


def position_reports(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Read lines and return the position reports among them, with their seconds as event time."""
    values = pc.split_pattern(lines["line"], ",")
    if not pc.all(pc.equal(pc.list_value_length(values), FIELD_COUNT)).as_py():
        raise ValueError(f"a record of Linear Road has {FIELD_COUNT} fields, separated by commas")
    if pc.any(pc.match_substring(lines["line"], "x", ignore_case=True)).as_py():
        raise ValueError("the numbers of a record are decimal")  # Arrow would take 0x32 for 50
    table = values.flatten().cast(pa.int64()).to_numpy().reshape(-1, FIELD_COUNT)
    reports = table[table[:, 0] == POSITION_REPORT]
    columns = {name: np.ascontiguousarray(reports[:, at]) for at, name in enumerate(FIELDS) if at}
    _check(columns)
    at = pa.array(columns["time"] * 1_000_000, REPORT.field("at").type)
    return pa.record_batch([*map(pa.array, columns.values()), at], schema=REPORT)


def _check(columns: dict[str, Whole]) -> None:
    for name, (first, last) in _FIRST_AND_LAST.items():
        wrong = columns[name][(columns[name] < first) | (columns[name] > last)]
        if len(wrong):
            raise ValueError(f"{name}={wrong[0]} of a position report is not from {first} to {last}")
