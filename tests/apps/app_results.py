"""What an application makes of its made rows, on Headwater and on the twin."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headwater as hw
from tests.structured_runs import run_to_end

Row = dict[str, Any]


def made_rows(app: hw.App, count: int) -> list[Row]:
    """Return the first made rows."""
    rows: list[Row] = app.made()(0, count).to_pylist()
    return rows


def results_of(app: hw.App, rows: int, **settings: Any) -> dict[str, list[Row]]:
    """Run an application on made rows and return its results by name; every row must be accounted for."""
    sinks: dict[str, Any] = {}
    flow = app.flow(app.source(rows=rows), lambda name: sinks.setdefault(name, hw.to.memory()))
    status = hw.run(flow, spark=False, **settings)
    assert status.ledger is not None
    assert status.ledger.balanced
    return {name: sink.rows() for name, sink in sinks.items()}


def twin_results_of(app: hw.App, rows: int, session: SparkSession, directory: Path) -> dict[str, list[Row]]:
    """Run an application on made rows as Structured Streaming and return its results by name."""
    sinks: dict[str, Any] = {}
    flow = app.flow(app.source(rows=rows), lambda name: sinks.setdefault(name, hw.to.memory()))
    run_to_end(flow, session, directory)
    return {name: sink.rows() for name, sink in sinks.items()}
