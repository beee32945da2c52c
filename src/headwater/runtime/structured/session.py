"""The Spark session of a twin: its own on any master, or one beside a session that is there already."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headwater.model.errors import EngineError
from headwater.runtime.config import cores_here
from headwater.runtime.java import find_java
from headwater.runtime.spark import _output_to, _quieten, forget_dead_session, spark_conf

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_ROCKS: Final = f"{_STREAMING}.state.RocksDBStateStoreProvider"
_PLAIN_FILES: Final = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"

# What a twin needs of a session, whatever it runs on. All of it can be set beside a session that is there already.
_SQL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # as Headwater's columns are
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": _ROCKS,  # transformWithState runs on no other
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",  # else a batch uploads all state
    "spark.sql.streaming.checkpointFileManagerClass": _PLAIN_FILES,  # 0.22 s a micro-batch; the other forks chmod: 0.32
}


def start_structured_session(directory: Path, master: str | None = None) -> SparkSession:
    """Start the session of this process on a master, by default on this machine's cores.

    Workers of a master elsewhere need Headwater installed and must see the run's directory under the same path. What
    Spark prints goes to spark.log in the directory.
    """
    forget_dead_session()
    if SparkContext._active_spark_context is not None:
        raise EngineError("this process has a Spark session already; pass it on as session=, or stop it first")
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores = cores_here()
    conf = spark_conf(directory, cores)
    conf.set("spark.master", master or f"local[{cores}]")
    conf.set("spark.app.name", "headwater-structured")
    conf.set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.executorEnv.PYSPARK_PYTHON", sys.executable)
    if master is not None and not master.startswith("local"):
        for setting in ("spark.driver.host", "spark.driver.bindAddress"):
            conf._conf.pop(setting, None) if conf._conf is not None else None
    log = directory / "spark.log"
    try:
        with _output_to(log):
            session = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as failure:  # py4j raises many kinds; all mean the same to a user
        raise EngineError(
            f"Spark could not be started on {master or 'this machine'} "
            f"({type(failure).__name__}: {str(failure).splitlines()[0]}); see {log}"
        ) from failure
    _quieten(session)
    return session


def beside(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on the same Spark that has the settings of a twin and changes none of the other's."""
    own = session.newSession()
    for setting, value in {**_SQL, **settings}.items():
        own.conf.set(setting, value)
    return own
