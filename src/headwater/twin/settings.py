"""The settings of a twin: one frozen value, with the reason for each default beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredSettings:
    """The settings of one run as Structured Streaming."""

    file_rows: int = (
        50_000  # of one staged file, which is one micro-batch: many, since a micro-batch costs 0.2 to 0.5 s
    )
    exact_lateness: bool = False  # True: a row is late by all rows before it, as on Headwater
    trigger_s: float = 0.0  # between micro-batches; 0: as soon as there are rows
    spark: Mapping[str, str] = field(
        default_factory=dict
    )  # settings of Spark SQL, such as spark.sql.shuffle.partitions

    def __post_init__(self) -> None:
        if self.file_rows < 1:
            raise ConfigError(f"file_rows={self.file_rows} is not possible; use 1 or more")
        if self.trigger_s < 0:
            raise ConfigError(f"trigger_s={self.trigger_s} is not possible; use 0 or more")
