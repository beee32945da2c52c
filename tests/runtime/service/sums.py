"""A flow for clusters whose results plain Python can work out: counts and sums by key, with state on several nodes."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

SUMS: Final = """
import headwater as hw
import pyarrow.compute as pc

from sums_beside import count_and_sum, made_rows, twice

made = hw.read.generator(made_rows, rows={rows}, rate={rate}, name="made")
kept = made.filter(lambda batch: pc.not_equal(pc.bit_wise_and(batch["n"], 3), 1), name="not-1-mod-4")
counted = kept.flat_map(twice).key_by("sensor").stateful(count_and_sum, parallelism=2)
flow = hw.flow("{name}", counted.sink(hw.to.json({out!r})))
"""


def write_sums(directory: Path, name: str, out: Path, rows: int, rate: float | None = None) -> Path:
    """Write a file with the flow, whose functions are in a module beside it; what to expect is in that module too."""
    shutil.copy(Path(__file__).parents[1] / "flows.py", directory / "sums_beside.py")
    file = directory / f"{name}.py"
    file.write_text(SUMS.format(name=name, out=str(out), rows=rows, rate=rate))
    return file


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Return what the sink has written."""
    return [json.loads(line) for line in file.read_text().splitlines()]
