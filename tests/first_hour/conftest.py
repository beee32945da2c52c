"""One node for all snippets: they run one after the other, each as an app of its own."""

from collections.abc import Iterator

import pytest

from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node that runs without Spark."""
    with Node(NodeConfig(spark=False, workers=1)) as started:
        yield started
