"""Running a flow to its end from Python, on a node that exists only for that."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from headwater.client.result import RunResult, result_here
from headwater.dataflow.stream import Flow
from headwater.model.errors import ConfigError
from headwater.model.suggestions import did_you_mean
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig


def run_to_end(flow: Flow, settings: Mapping[str, Any]) -> RunResult:
    """Run a flow on a node of its own; raises the error with which it failed."""
    known = [field.name for field in fields(NodeConfig)]
    for name in settings:
        if name not in known:
            raise ConfigError(f"hw.run has no setting {name!r}{did_you_mean(name, known)}; it has: {', '.join(known)}")
    config = NodeConfig(**settings)
    with Node(config) as node:
        app = node.deploy(flow)
        node.wait(app)
        if app.error is not None:
            raise app.error
        return result_here(node.status(ledgers=True).apps[0])
