"""Running a flow to its end from Python, on a node that exists only for that."""

from collections.abc import Mapping
from typing import Any

from headwater.dataflow.stream import Flow
from headwater.engine.status import AppStatus
from headwater.model.errors import ConfigError
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig


def run_to_end(flow: Flow, settings: Mapping[str, Any]) -> AppStatus:
    """Run a flow on a node of its own; raises the error with which it failed."""
    try:
        config = NodeConfig(**settings)
    except TypeError as unknown:
        raise ConfigError(f"a node has no such setting: {unknown}") from unknown
    with Node(config) as node:
        app = node.deploy(flow)
        node.wait(app)
        if app.error is not None:
            raise app.error
        return node.status(ledgers=True).apps[0]
