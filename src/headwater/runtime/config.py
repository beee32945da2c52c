"""How a node is set up: one frozen value, with the reason for each default beside it."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.pressure import PressureConfig
from headwater.engine.scheduler import SchedulerConfig
from headwater.model.errors import ConfigError


def cores_here() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node."""

    store: Path | None = None  # None: a temporary one, gone with the node
    workers: int = field(default_factory=cores_here)  # operators compute, so one for each core (EdgeWise, section 4.2)
    policy: PolicyName = PolicyName.LONGEST_QUEUE
    consumption: Consumption = field(default_factory=Consumption)
    pressure: PressureConfig = field(default_factory=PressureConfig)
    chaining: bool = True
    packing: bool = True  # short turns are packed together and follow their rows; False to see a policy by itself
    spark: bool = True  # False: workers are threads of the node, for tests and for machines without Java
    power_safe: bool = False  # True: every commit waits for the disk, so that a power cut loses nothing
    epoch_s: float = 300.0  # how long a pool's Spark job lives; the next one takes over without a gap
    sample_share: float = 0.05  # of rows whose latency is measured (EdgeWise, section 7.1)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 1 <= self.workers <= 32:
            raise ConfigError(f"{self.workers} workers are not possible; use 1 to 32")
        if self.epoch_s < 1:
            raise ConfigError(f"an epoch of {self.epoch_s} s is too short; use 1 s or more")
        if not 0 <= self.sample_share <= 1:
            raise ConfigError(f"a sample of {self.sample_share} is not possible; use 0 to 1")

    def scheduler(self) -> SchedulerConfig:
        """Return what the scheduler needs to know."""
        return SchedulerConfig(
            workers=self.workers,
            policy=self.policy,
            consumption=self.consumption,
            pack=self.packing,
            follow=self.packing,
            seed=self.seed,
        )
