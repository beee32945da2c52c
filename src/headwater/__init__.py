"""Headwater: stream processing at the edge, every operator on Spark.

`import headwater as hw` gives what a flow is written with. Nothing here starts Spark: that is for `headwater run`, or
for `hw.run(flow)`.
"""

from typing import TYPE_CHECKING, Any

import pyarrow.compute as _compute

from headwater.connectors import read, senml, to
from headwater.connectors.app import App, Wire
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
    from pathlib import Path

    import pyarrow as pa

    from headwater.runtime.service.client import Cluster
    from headwater.runtime.status import AppStatus

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
    "read_state",
    "run",
    "senml",
    "source",
    "table",
    "to",
]


def run(flow: Flow, **settings: Any) -> "AppStatus":
    """Run a flow to its end on a node embedded in this process and return what became of it.

    `settings` are those of `headwater.runtime.config.NodeConfig`, such as `workers=2` or `spark=False`. Raises the
    error with which the flow failed, if it did.
    """
    from headwater.runtime.embedded import run_to_end  # Spark is not needed to write a flow

    return run_to_end(flow, settings)


def read_state(store: "str | Path", flow: str, operator: str | None = None, variable: str | None = None) -> "pa.Table":
    """Return what a state variable of a `process` holds for every key, from the store of a node.

    Without a variable: which there are, with their schemas. "timers" are the timers that are registered.
    """
    from headwater.runtime import state_reading  # nor is what reads stores

    return state_reading.read_state(store, flow, operator, variable)


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from headwater.runtime.service.client import Cluster  # nor is what speaks to nodes

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
