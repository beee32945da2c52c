"""The Spark session of a twin: its own on any master, or one beside a session that is there already."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headwater.spark.session import open_callbacks, spark_conf, start_spark
from headwater.spark.standalone import reach_master
from headwater.workers.config import cores_here

_HEAP: Final = "1g"  # of the driver, through which all rows of the sinks pass
_EXECUTOR_MB: Final = 1_024  # Spark's own default
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_ROCKS: Final = f"{_STREAMING}.state.RocksDBStateStoreProvider"
_PLAIN_FILES: Final = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"

# What a twin requires of a session. All of it can be set beside an existing session.
_SQL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # as Headwater's columns are
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.exchange.reuse": "false",  # else a stream that is read twice has its watermark in one copy only
    "spark.sql.streaming.stateStore.providerClass": _ROCKS,  # transformWithState runs on no other
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",  # else a batch uploads all state
    "spark.sql.streaming.checkpointFileManagerClass": _PLAIN_FILES,  # 0.22 s a micro-batch; the other forks chmod: 0.32
}


def is_elsewhere(master: str | None) -> bool:
    """Whether tasks run in other processes than the driver, perhaps on other machines."""
    return master is not None and not (master.startswith("local[") or master == "local")


def start_structured_session(directory: Path, master: str | None = None) -> SparkSession:
    """Start the session of this process on a master, by default on this machine's cores.

    Workers of a master elsewhere need Headwater installed and must see the run's folder under the same path. Spark's
    output goes to spark.log in that folder.
    """
    cores = cores_here()
    if is_elsewhere(master):
        assert master is not None
        conf = spark_conf(directory, cores, master, host=_host_for(master), executor_mb=_EXECUTOR_MB)
        conf.set("spark.task.maxFailures", "4")  # Spark's default: a task that fails repeatedly is the user's error
    else:
        conf = spark_conf(directory, cores).set("spark.master", master or f"local[{cores}]")
    conf.set("spark.app.name", "headwater-structured")
    conf.set("spark.driver.memory", _HEAP)
    conf.set("spark.ui.showConsoleProgress", "false")
    return start_spark(directory, conf)


def _host_for(master: str) -> str:
    """Return the address of this machine as the executors see it."""
    if master.startswith("spark://"):
        return reach_master(master)
    return "127.0.0.1" if master.startswith("local-cluster") else socket.gethostname()


def beside(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on the same Spark that has the settings of a twin and changes none of the other's."""
    open_callbacks()  # each micro-batch is brought to a function of ours
    own = session.newSession()
    for setting, value in {**_SQL, **settings}.items():
        own.conf.set(setting, value)
    return own
