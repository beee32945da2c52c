"""Who sends messages: made-up ids, and what is known of each id (RIoTBench's metadata files).

A metadata file has lines `id:value1,value2,...`; the ids in it are the members of the Bloom filters, its values are
what messages are annotated with.
"""

from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import headwater as hw

from ..chance import drawn, whole
from .datasets import Dataset

METADATA_BYTES_MAX: Final = 256 << 20  # RIoTBench's largest has half a megabyte; this is no file of that kind any more
STRANGER_SHARE: Final = 0.02  # of the messages: from senders that the metadata does not know
SENSORS_PER_BOARD: Final = 25  # the boards of CITY report under their id with a number added

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "location": ("building1", "building2", "building3", "building4", "nbh", "ece", "ngh", "serc", "cds", "sensa"),
    "type": ("analog", "electronic", "solar", "heat", "digital", "ultrasound", "radar"),
    "taxi_company": ("nyc", "wheels", "taxi", "jam", "travel", "escort", "uscab", "carpool", "drivesafe", "uber"),
    "drivername": ("john", "george", "james", "kelly", "henry", "tom", "max", "dellas", "miler", "sam"),
    "taxi_city": ("Los Angeles", "Austin", "San Diego", "Chicago", "NY", "San Jose", "San Antonio", "Houston"),
    "age": ("6", "21", "23", "30", "37", "39", "53", "56", "57"),
    "gender": ("F", "M"),
    "customer": ("residential", "business", "other"),
    "tariff": ("A", "B", "C", "D", "E"),
}


@lru_cache(maxsize=16)
def made_ids(dataset: Dataset, sensors: int, seed: int) -> pa.Array:
    """Return the ids of that many known senders, and behind them those of a few that nobody knows."""
    numbers = range(sensors + strangers(dataset, sensors))
    match dataset.name:
        case "city":
            return pa.array([f"ci4{_base36(n // SENSORS_PER_BOARD, seed)}{n % SENSORS_PER_BOARD}" for n in numbers])
        case "taxi":
            return hexadecimal_ids(len(numbers), seed)
        case "fit":
            return pa.array([f"subject{n + 1}" for n in numbers])
        case "grid":
            return pa.array([str(1000 + n) for n in numbers])


def strangers(dataset: Dataset, sensors: int) -> int:
    """Return how many unknown senders there are: none where no filter would notice them."""
    return 0 if dataset.bloom_field is None else max(1, sensors // 20)


def hexadecimal_ids(count: int, seed: int, salt: int = 0) -> pa.Array:
    """Return ids as New York's taxis have them: 32 hexadecimal digits."""
    numbers = np.arange(count)
    halves = zip(drawn(numbers, seed, salt).tolist(), drawn(numbers, seed, salt + 1).tolist(), strict=True)
    return pa.array([f"{first:016X}{second:016X}" for first, second in halves], pa.string())


def _base36(number: int, seed: int) -> str:
    """Return 22 digits that look drawn, and are the same for one board."""
    bits = int(drawn(number, seed, 11)) << 64 | int(drawn(number, seed, 12))
    return "".join(_BASE36[bits // 36**place % 36] for place in range(22))


@lru_cache(maxsize=16)
def made_metadata(dataset: Dataset, sensors: int, seed: int) -> pa.Table:
    """Return what is known of the made-up senders: a column with their ids, then one for each annotation."""
    numbers = np.arange(sensors)
    columns = {dataset.id_field: made_ids(dataset, sensors, seed).slice(0, sensors)}
    for salt, field in enumerate(dataset.annotations, start=21):
        known = _VALUES[field.name]
        columns[field.name] = pa.array(known).take(whole(numbers, len(known), seed, salt)).cast(field.type)
    return pa.table(columns)


def read_metadata(dataset: Dataset, path: Path) -> pa.Table:
    """Read what is known of the real senders."""
    try:
        if path.stat().st_size > METADATA_BYTES_MAX:
            raise hw.ConfigError(
                f"{path} has more than {METADATA_BYTES_MAX} bytes; it is no metadata of {dataset.name}"
            )
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise hw.ConfigError(f"the metadata of {dataset.name} cannot be read: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise hw.ConfigError(f"{path} is not text in UTF-8; metadata has lines `id:value,...`") from error
    rows = [_known(dataset, path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    columns = list(zip(*rows, strict=True)) or [()] * (1 + len(dataset.annotations))
    names = [dataset.id_field, *(field.name for field in dataset.annotations)]
    texts = pa.table([pa.array(column, pa.string()) for column in columns], names=names)
    return texts.cast(pa.schema([(dataset.id_field, pa.string()), *((f.name, f.type) for f in dataset.annotations)]))


def _known(dataset: Dataset, path: Path, number: int, line: str) -> list[str]:
    """Return the id and the values of one line."""
    sender, colon, values = line.strip().partition(":")
    found = [sender, *values.split(",")]
    if not colon or len(found) != 1 + len(dataset.annotations):
        wanted = ",".join(field.name for field in dataset.annotations)
        raise hw.ConfigError(f"{path}, line {number}: {line.strip()[:100]!r} is not {dataset.id_field}:{wanted}")
    return found
