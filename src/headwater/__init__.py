"""Headwater: stream processing at the edge, every operator on Spark.

`import headwater as hw` gives what a flow is written with. Nothing here starts Spark: that is for `headwater run`, or
for `hw.run(flow)`.
"""

from typing import TYPE_CHECKING, Any

import pyarrow.compute as _compute

from headwater.connectors import read, senml, to
from headwater.connectors.application import App, Wire
from headwater.connectors.cities import CityRows
from headwater.connectors.models import model_file
from headwater.connectors.tables import table
from headwater.dataflow import functions
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow, KeyedStream, Sink, Stream, WindowedStream, flow, source
from headwater.model.errors import ConfigError, ConnectorError, FlowError, HeadwaterError, UserCodeError
from headwater.operators.functions import Row
from headwater.operators.state import KeyedState

if TYPE_CHECKING:
    from headwater.client.cluster import Cluster
    from headwater.engine.status import AppStatus

col = _compute.field

__version__ = "0.1.0"

__all__ = [
    "App",
    "CityRows",
    "Cluster",
    "ConfigError",
    "ConnectorError",
    "Flow",
    "FlowError",
    "Graph",
    "HeadwaterError",
    "KeyedState",
    "KeyedStream",
    "Row",
    "Sink",
    "Stream",
    "UserCodeError",
    "WindowedStream",
    "Wire",
    "col",
    "compile_flow",
    "flow",
    "functions",
    "model_file",
    "read",
    "run",
    "senml",
    "source",
    "table",
    "to",
]


def run(flow: Flow, **settings: Any) -> "AppStatus":
    """Run a flow to its end on a node embedded in this process and return what became of it.

    `settings` are those of `headwater.workers.config.NodeConfig`, such as `workers=2` or `spark=False`. Raises the
    error with which the flow failed, if it did.
    """
    from headwater.runtime.embedded import run_to_end  # Spark is not needed to write a flow

    return run_to_end(flow, settings)


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from headwater.client.cluster import Cluster  # nor is what speaks to nodes

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
