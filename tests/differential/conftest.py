"""Two engines for the same flow: Headwater, and Spark in the same process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.dataflow.stream import Flow
from headwater.runtime.node import Node
from headwater.twin.session import beside
from headwater.twin.settings import StructuredSettings
from headwater.workers.local.pool import SparkPool
from tests.structured_runs import run_to_end

PATIENCE_S = 600.0

RunFlow = Callable[[Flow], None]


@pytest.fixture(scope="module")  # not longer: tests of another module kill the JVM, and the node starts a new one
def spark(spark_node: Node) -> SparkSession:
    """Spark SQL, for batch queries that say what must come out."""
    pool = spark_node.pool
    assert isinstance(pool, SparkPool)
    return beside(pool.session, {})


@pytest.fixture
def on_headwater(spark_node: Node) -> RunFlow:
    """Runs a flow to its end on a node of Spark tasks; its ledger must balance."""

    def run(flow: Flow) -> None:
        app = spark_node.deploy(flow)
        assert spark_node.wait(app, PATIENCE_S)
        if app.error is not None:
            raise app.error
        assert spark_node.ledger(app).balanced
        spark_node.remove(flow.name)

    return run


@pytest.fixture
def on_structured(spark_node: Node, tmp_path: Path) -> RunFlow:
    """Runs a flow to its end as Structured Streaming, late rows judged one by one as Headwater judges them."""
    pool = spark_node.pool
    assert isinstance(pool, SparkPool)

    def run(flow: Flow) -> None:
        run_to_end(flow, pool.session, tmp_path, StructuredSettings(exact_lateness=True), patience_s=PATIENCE_S)

    return run
