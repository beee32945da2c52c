"""The configuration of a node: one frozen value, with the reason for each default beside it."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.pressure import PressureConfig
from headwater.engine.scheduler import SchedulerConfig
from headwater.model.errors import ConfigError
from headwater.spark.standalone import StandaloneCluster, masters_of

# Which workers reach the store over the network: those on other machines, all (to try several machines on one), or
# none, so that no port is opened.
RemoteUse = Literal["auto", "always", "never"]
EXECUTOR_MB_MIN: Final = 450  # Spark refuses less: 1.5 times the 300 MB that it reserves


def cores_here() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The configuration of one node."""

    store: Path | None = None  # None: a temporary one, deleted with the node
    workers: int = field(default_factory=cores_here)  # operators compute, so one for each core (EdgeWise, section 4.2)
    policy: PolicyName = PolicyName.LONGEST_QUEUE
    consumption: Consumption = field(default_factory=Consumption)
    pressure: PressureConfig = field(default_factory=PressureConfig)
    chaining: bool = True
    packing: bool = True  # short turns are packed together and follow their rows; False to measure a policy alone
    spares_max: int = 6  # workers beyond the pool, while long computations occupy all of it; 0: a fixed size
    spark: bool = True  # False: workers are threads of the node, for tests and for machines without Java
    spark_master: str | None = None  # spark://host:port: workers are tasks on that cluster. None: on a Spark of our own
    executor_mb: int = 512  # of each executor on the cluster; the rows are in Python, whose memory is not counted
    remote_port: RemoteUse = "auto"
    power_safe: bool = False  # True: every commit waits for the disk, so that a power cut loses nothing
    epoch_s: float = 300.0  # how long a pool's Spark job lives; the next one takes over without a gap
    sample_share: float = 0.05  # of rows whose latency is measured (EdgeWise, section 7.1)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 32:
            raise ConfigError(f"{self.workers} workers are not possible; use 1 to 32")
        if not 0 <= self.spares_max <= 32:
            raise ConfigError(f"{self.spares_max} spare workers are not possible; use 0 to 32")
        if self.epoch_s < 1:
            raise ConfigError(f"an epoch of {self.epoch_s} s is too short; use 1 s or more")
        if not 0 <= self.sample_share <= 1:
            raise ConfigError(f"a sample of {self.sample_share} is not possible; use 0 to 1")
        if self.remote_port not in get_args(RemoteUse):
            raise ConfigError(f"no such remote_port: {self.remote_port!r}; use {', '.join(get_args(RemoteUse))}")
        self._check_cluster()

    def _check_cluster(self) -> None:
        if self.spark_master is None:
            return
        if not self.spark:
            raise ConfigError(f"a node without Spark cannot use the Spark master {self.spark_master}")
        masters_of(self.spark_master)
        if self.executor_mb < EXECUTOR_MB_MIN:
            raise ConfigError(f"an executor of {self.executor_mb} MB is too small; use {EXECUTOR_MB_MIN} or more")

    def scheduler(self) -> SchedulerConfig:
        """Return the scheduler's configuration."""
        return SchedulerConfig(
            workers=self.workers,
            policy=self.policy,
            consumption=self.consumption,
            pack=self.packing,
            follow=self.packing,
            spares_max=self.spares_max,
            seed=self.seed,
        )

    def cluster(self) -> StandaloneCluster | None:
        """Return the Spark cluster of the pool; None: the node starts its own Spark."""
        if self.spark_master is None:
            return None
        dedicated = self.policy is PolicyName.ONE_WORKER_PER_OPERATOR
        enough = 2 * self.workers  # two epochs overlap
        return StandaloneCluster(
            master=self.spark_master,
            executor_mb=self.executor_mb,
            slots_enough=enough,
            slots_max=None if dedicated else enough + self.spares_max,
        )
