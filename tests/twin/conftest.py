"""What the tests of the twin share: the one Spark that a process can have, which is the node's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.dataflow.stream import Flow
from headwater.runtime.node import Node
from headwater.twin.query import StructuredStatus, run_structured
from headwater.twin.settings import StructuredSettings
from headwater.workers.local.pool import SparkPool

RunTwin = Callable[..., StructuredStatus]


@pytest.fixture
def run_twin(spark_node: Node, tmp_path: Path) -> RunTwin:
    """Runs a flow as Structured Streaming beside the node's own work."""
    pool = spark_node.pool
    assert isinstance(pool, SparkPool)

    def run(flow: Flow, *, limit_s: float | None = 120.0, **settings: Any) -> StructuredStatus:
        return run_structured(
            flow,
            session=pool.session,
            directory=tmp_path,
            settings=StructuredSettings(**settings),
            limit_s=limit_s,
        )

    return run
