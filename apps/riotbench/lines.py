"""RIoTBench's lines, `<epoch ms>,<SenML JSON>`: written from columns, made up, and read from the real files.

A message is `{"e":[{"u":"string","n":"source","sv":"ci4.."},{"v":"8.1","u":"far","n":"temperature"}..],"bt":14227..}`:
entries with a name, a unit and a value, in the dialect of SenML that was current in 2016. All values are strings, also
the numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from .datasets import TIMESTAMP, Dataset, Field
from .datasets import dataset as dataset_named
from .made_city import made_city
from .made_fit import made_fit
from .made_grid import made_grid
from .made_taxi import made_taxi

_MADE: Final[dict[str, Callable[[int, int, int, int], dict[str, pa.Array]]]] = {
    "city": made_city,
    "taxi": made_taxi,
    "fit": made_fit,
    "grid": made_grid,
}


@dataclass(frozen=True)
class MadeLines:
    """Messages of a data set, made up: each is a function of its number."""

    dataset: str
    sensors: int = 0  # 0: as many as there are in the original
    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make messages `first` to `first + count - 1`."""
        found = dataset_named(self.dataset)
        columns = _MADE[self.dataset](first, count, self.sensors or found.sensors, self.seed)
        payloads = senml(columns, found.fields, base_time_is_text=found.base_time_is_text)
        times = columns[TIMESTAMP].cast(pa.string())
        return pa.record_batch({"line": pc.binary_join_element_wise(times, payloads, ",")})


def senml(columns: Mapping[str, pa.Array], fields: tuple[Field, ...], *, base_time_is_text: bool) -> pa.Array:
    """Return the message of each row, with an entry for each of these fields; a null's value is the text null."""
    pieces: list[pa.Array | str] = ['{"e":[']
    for field in fields:
        if field.name != TIMESTAMP:
            separator = "," if len(pieces) > 1 else ""
            pieces += _entry(field, separator, columns[field.name])
    quote = '"' if base_time_is_text else ""
    pieces += [f'],"bt":{quote}', columns[TIMESTAMP].cast(pa.string()), f"{quote}}}"]
    return pc.binary_join_element_wise(*pieces, "", null_handling="replace", null_replacement="null")


def _entry(field: Field, separator: str, column: pa.Array) -> list[pa.Array | str]:
    if field.kind == "v":
        return [f'{separator}{{"v":"', column.cast(pa.string()), f'","u":"{field.unit}","n":"{field.name}"}}']
    return [f'{separator}{{"u":"{field.unit}","n":"{field.name}","sv":"', escaped(column), '"}']


def escaped(texts: pa.Array) -> pa.Array:
    """Return texts as they may stand within quotes in JSON; hardly any has a character that may not."""
    if not pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        return texts
    quoted = [None if text is None else orjson.dumps(text).decode()[1:-1] for text in texts.to_pylist()]
    return pa.array(quoted, pa.string())


def real_lines(dataset: Dataset, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
    """Read the real messages of a data set."""
    if dataset.sample is None:
        raise hw.ConfigError(f"no real messages of {dataset.name} are public; leave --data away, and they are made")
    path = data / dataset.sample
    if not path.is_file():
        raise hw.ConfigError(f"there is no file {path}; {dataset.name} reads its messages there (docs/data.md)")
    return hw.read.text(path, rate=rate, loop=loop, bad_lines="skip", name="input")
