"""The keyed sliding average as a Structured Streaming query.

By `applyInPandasWithState`, which needs nothing but Spark; `transformWithState` also needs protobuf, and in a first
comparison on a busy machine was no faster. The state is a binary column: an array failed in Spark 4.3's Python worker.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from bench.workload import LAST_ROWS, averages

RESULT = "created_us long, sensor string, mean double"


def sliding_averages(lines: DataFrame) -> DataFrame:
    """Return the query; the text is taken apart by Spark's own expressions, which cost next to nothing."""
    parts = sql.split("value", ",")
    readings = lines.select(
        parts[0].cast("long").alias("created_us"), parts[1].alias("sensor"), parts[2].cast("double").alias("celsius")
    )
    return readings.groupBy("sensor").applyInPandasWithState(
        _average, RESULT, "last binary", "append", GroupStateTimeout.NoTimeout
    )


def _average(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    last = deque(np.frombuffer(state.get[0]).tolist() if state.exists else (), LAST_ROWS)
    for frame in frames:
        means = list(averages(frame["celsius"].tolist(), last))
        yield pd.DataFrame({"created_us": frame["created_us"], "sensor": key[0], "mean": means})
    state.update((np.array(last).tobytes(),))
