"""`transform` and `sql`: the user's own DataFrame code, on the streaming DataFrame itself."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from headwater.model.errors import FlowError
from headwater.operators.sql import STREAM, Transform, TransformStep
from headwater.operators.tables import TableSpec
from headwater.twin.columns import spark_form, table_in
from headwater.twin.streams import Site, TwinStream, computed

_CASE: Final = "spark.sql.caseSensitive"


def transformed(site: Site, operator: Transform) -> TwinStream:
    """Return the result of the steps for the rows."""
    frame = site.inputs[0].frame
    with _as_users_write_it(site.session):
        for step in operator.steps:
            frame = _stepped(site, step, frame)
    if operator.schema is not None:
        frame = frame.select(*_declared(site, frame, operator))
    return computed(frame, operator.schema, site.where)


def _stepped(site: Site, step: TransformStep, frame: DataFrame) -> DataFrame:
    tables = {name: loaded(site, spec) for name, spec in step.tables}
    if step.function is not None:
        made = step.function(frame, **tables)
        if not isinstance(made, DataFrame):
            raise FlowError(f"{site.where} returned a {type(made).__name__}; it must return a DataFrame")
        return made
    assert step.query is not None
    for name, table in {STREAM: frame, **tables}.items():
        table.createOrReplaceTempView(name)
    return site.session.sql(step.query)


def _declared(site: Site, frame: DataFrame, operator: Transform) -> list[str]:
    assert operator.schema is not None
    if set(frame.columns) != set(operator.schema.names):
        raise FlowError(
            f"{site.where} returns columns {', '.join(frame.columns)}, but declares {', '.join(operator.schema.names)}"
        )
    return [f"`{name}`" for name in operator.schema.names]


def loaded(site: Site, spec: TableSpec) -> DataFrame:
    """Return a table as a static DataFrame."""
    table = spec.load(time.time_ns() // 1_000)
    return site.session.createDataFrame(table_in(table, spark_form(table.schema, f"a table of {site.where}")))


@contextmanager
def _as_users_write_it(session: SparkSession) -> Iterator[None]:
    """Make names case-insensitive while users' code builds its plan, as is Spark's default."""
    session.conf.set(_CASE, "false")
    try:
        yield
    finally:
        session.conf.set(_CASE, "true")
