"""What RIoTBench's applications have in common: messages of a data set, and what is known of those who send them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

import headwater as hw

from .datasets import Dataset, DatasetName, dataset
from .identities import made_metadata, read_metadata
from .lines import MadeLines, real_lines


def check_sensors(sensors: int) -> None:
    """Refuse a number of sensors that makes no sense."""
    if sensors < 0:
        raise ValueError(f"there cannot be {sensors} sensors; 0 means as many as in the original")


@dataclass(frozen=True, kw_only=True)
class OfMessages:
    """The half of an application that is about its input."""

    wire: ClassVar[hw.Wire] = "text"

    dataset: DatasetName = "city"
    sensors: int = 0  # of made messages; 0: as many as there are in the original
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_sensors(self.sensors)

    @property
    def described(self) -> Dataset:
        """The data set, with all that the benchmark says about it."""
        return dataset(self.dataset)

    def made(self) -> MadeLines:
        """Return a generator of messages."""
        return MadeLines(self.dataset, self.sensors, self.seed)

    @property
    def has_real_data(self) -> bool:
        """Whether messages of the data set are public."""
        return self.described.sample is not None

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the real messages of the data set."""
        return real_lines(self.described, data, rate=rate, loop=loop)


@dataclass(frozen=True, kw_only=True)
class OfSenders(OfMessages):
    """The same for an application that asks who sent a message."""

    metadata: str = ""  # a file of what is known of the senders; "": that of the made ones

    @property
    def known_senders(self) -> pa.Table:
        """What is known of the senders: their ids, and the annotations of each."""
        if self.metadata:
            return read_metadata(self.described, Path(self.metadata))
        return made_metadata(self.described, self.sensors or self.described.sensors, self.seed)

    def with_data(self, data: Path) -> Self:
        """Know the senders of the real messages, unless told of others."""
        if self.metadata or self.described.metadata is None:
            return self
        return replace(self, metadata=str(data / self.described.metadata))
