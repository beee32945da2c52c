"""Flow files that the tests write and run, and the shapes of the fixtures that do it."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from typer.testing import Result

LINEAR: Final = """
import headwater as hw

def double(row: hw.Row) -> hw.Row:
    return {"value": row["value"] * 2}

flow = hw.flow(
    "linear",
    hw.read.iterable(range(100))
    .map(double, name="double")
    .filter(hw.col("value") >= 20, name="from-twenty")
    .sink(hw.to.nothing(), name="end"),
)
"""

ENDLESS: Final = """
import headwater as hw

def same(batch):
    return batch

flow = hw.flow("endless", hw.read.cities(sensors=50, rate=500).map(same).sink(hw.to.nothing()))
"""

Write = Callable[[str, str], Path]
Command = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]
