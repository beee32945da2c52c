"""A flow as Structured Streaming, to its end: what a run that was cut off has written proves nothing."""

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headwater.dataflow.stream import Flow
from headwater.twin.query import QueryEnding, run_structured
from headwater.twin.settings import StructuredSettings

ONE_TASK: Final = StructuredSettings(spark={"spark.sql.shuffle.partitions": "1"})  # each starts Python per operator


def run_to_end(
    flow: Flow,
    session: SparkSession,
    directory: Path,
    settings: StructuredSettings = ONE_TASK,
    *,
    patience_s: float = 300.0,
) -> None:
    """Run a flow until its sources have ended and everything is written."""
    status = run_structured(flow, session=session, directory=directory, settings=settings, limit_s=patience_s)
    assert status.ending is QueryEnding.FINISHED, (
        f"{flow.name} was cut off after {status.seconds:.0f} s, {dict(status.micro_batches)} micro-batches and "
        f"{dict(status.rows_in)} rows: this machine is too slow or too busy"
    )
