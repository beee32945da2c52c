"""DataFrame operators on the node's Spark: a turn is one Spark SQL job over the waiting rows.

Such a turn runs on a worker beside the session, not in the pool: only the driver can submit jobs. Every opened
transform has its own session over the one SparkContext, so that views of the same name do not collide.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.model.errors import NotNow
from headwater.operators import functions
from headwater.operators.chain import NamedOperator
from headwater.operators.functions import WrongResult
from headwater.operators.sql import STREAM, Transform, TransformStep
from headwater.operators.state import KeyedState
from headwater.operators.tables import TableSpec
from headwater.spark.session import is_usable


@dataclass(frozen=True, kw_only=True)
class SparkTransform(Transform):
    """A transform that can run on Spark."""

    def open(self) -> "TransformLogic":
        return TransformLogic(self)


def needs_driver(operators: Sequence[NamedOperator]) -> bool:
    """Whether a chain can run only beside the Spark session."""
    return any(isinstance(named.operator, Transform) for named in operators)


def bound(named: NamedOperator) -> NamedOperator:
    """Return an operator in the form that the node runs."""
    operator = named.operator
    if not isinstance(operator, Transform):
        return named
    return replace(
        named, operator=SparkTransform(steps=operator.steps, schema=operator.schema, on_error=operator.on_error)
    )


class _LoadedTable(NamedTuple):
    """A table as a DataFrame, and when it was loaded."""

    frame: DataFrame
    loaded_us: int


class TransformLogic:
    """Runs the steps as one plan."""

    def __init__(self, config: Transform) -> None:
        """Begin without a session, which is needed only once there are rows."""
        self._config = config
        self._parent: SparkSession | None = None
        self._session: SparkSession | None = None
        self._tables: dict[tuple[int, str], _LoadedTable] = {}

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Make a DataFrame of the rows, apply all steps, and collect the result."""
        session = self._own_session()
        try:
            return self._made(session, batch)
        except Exception as failure:  # py4j raises many kinds when its JVM goes, and a user's function any
            if is_usable(session):
                raise
            raise NotNow("Spark was lost while it ran a transform") from failure

    def _made(self, session: SparkSession, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        frame = session.createDataFrame(pa.Table.from_batches([batch]))
        for number, step in enumerate(self._config.steps):
            frame = self._apply(session, number, step, frame)
        made = functions.table_to_batch(frame.toArrow())
        return (functions.to_batch(made, self._config.schema),)

    def _own_session(self) -> SparkSession:
        active = SparkSession._instantiatedSession
        if active is None or not is_usable(active):
            raise NotNow("a transform needs Spark, which was lost and is started again")
        if self._session is None or self._parent is not active:  # a JVM that was lost has come back as another
            self._parent, self._session, self._tables = active, active.newSession(), {}
        return self._session

    def _apply(self, session: SparkSession, number: int, step: TransformStep, frame: DataFrame) -> DataFrame:
        tables = {name: self._table(session, number, name, spec) for name, spec in step.tables}
        if step.query is not None:
            frame.createOrReplaceTempView(STREAM)
            for name, table in tables.items():
                table.createOrReplaceTempView(name)
            return session.sql(step.query)
        assert step.function is not None
        made = step.function(frame, **tables)
        if not isinstance(made, DataFrame):
            raise WrongResult(f"it returned a {type(made).__name__}; a transform returns a DataFrame")
        return made

    def _table(self, session: SparkSession, number: int, name: str, spec: TableSpec) -> DataFrame:
        known = self._tables.get((number, name))
        now_us = time.time_ns() // 1_000
        if known is None:
            known = _LoadedTable(session.createDataFrame(spec.load(now_us)), now_us)
        elif spec.refresh_us is not None and now_us - known.loaded_us >= spec.refresh_us:
            rows = spec.refresh(now_us)
            known = _LoadedTable(known.frame if rows is None else session.createDataFrame(rows), now_us)
        self._tables[number, name] = known
        return known.frame
