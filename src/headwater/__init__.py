"""Headwater: stream processing at the edge, every operator on Spark.

`import headwater as hw` gives what a flow is written with. Nothing here starts Spark: that is for `headwater run`, or
for `hw.run(flow)`.
"""

from typing import TYPE_CHECKING, Any

from headwater.connectors import read, senml, to
from headwater.connectors.application import App, Wire
from headwater.connectors.cities import CityRows
from headwater.connectors.models import model_file
from headwater.connectors.tables import table
from headwater.dataflow import functions
from headwater.dataflow import near_names as _near_names
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow, KeyedStream, Sink, Stream, WindowedStream, flow, source
from headwater.model.errors import ConfigError, ConnectorError, FlowError, HeadwaterError, UserCodeError
from headwater.model.quoting import quoted as _quoted
from headwater.operators.expressions.sql_text import expr
from headwater.operators.expressions.trees import Column, col, lit, when
from headwater.operators.functions import Row
from headwater.operators.state import KeyedState

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from headwater.client.cluster import Cluster
    from headwater.client.result import RunResult

__version__ = "0.1.0"

__all__ = [
    "App",
    "CityRows",
    "Cluster",
    "Column",
    "ConfigError",
    "ConnectorError",
    "Flow",
    "FlowError",
    "Graph",
    "HeadwaterError",
    "KeyedState",
    "KeyedStream",
    "Row",
    "RunResult",
    "Sink",
    "Stream",
    "UserCodeError",
    "WindowedStream",
    "Wire",
    "col",
    "compile_flow",
    "expr",
    "flow",
    "functions",
    "lit",
    "model_file",
    "read",
    "read_state",
    "run",
    "senml",
    "source",
    "table",
    "to",
    "when",
]


def run(flow: Flow, **settings: Any) -> "RunResult":
    """Run a flow to its end on a node embedded in this process and return what became of it, as `Cluster.wait` does.

    `settings` are those of `headwater.workers.config.NodeConfig`, such as `workers=2` or `spark=False`. Raises the
    error with which the flow failed, if it did.
    """
    from headwater.runtime.embedded import run_to_end  # Spark is not needed to write a flow

    return run_to_end(_one_flow(flow), settings)


def _one_flow(given: Any) -> Flow:
    """Return a flow; what is none is answered with what to write."""
    if isinstance(given, Flow):
        return given
    if isinstance(given, list | tuple) and given and all(isinstance(one, Flow) for one in given):
        raise FlowError(
            "hw.run runs one flow; write hw.run(flow) for each of them, or one flow with the sinks of all: "
            'hw.flow("all", sink, other_sink)'
        )
    if isinstance(given, Sink) or (isinstance(given, list | tuple) and any(isinstance(one, Sink) for one in given)):
        raise FlowError('hw.run runs a flow, not a sink; write hw.run(hw.flow("name", sink))')
    if isinstance(given, Stream | WindowedStream):
        raise FlowError('hw.run runs a flow, not a stream; write hw.run(hw.flow("name", stream.sink(hw.to.console())))')
    raise FlowError(f'hw.run runs a flow, hw.flow("name", stream.sink(...)), not {_quoted(given)}')


def read_state(store: "str | Path", flow: str, operator: str | None = None, variable: str | None = None) -> "pa.Table":
    """Return what a state variable of a `process` holds for every key, from the store of a node.

    Without a variable: which there are, with their schemas. "timers" are the timers that are registered.
    """
    from headwater.runtime import state_reading  # nor is what reads stores

    return state_reading.read_state(store, flow, operator, variable)


def __getattr__(name: str) -> Any:
    if name == "RunResult":
        from headwater.client.result import RunResult

        return RunResult
    if name != "Cluster":
        _near_names.refuse("headwater", name, _near_names.MODULE, __all__)
    from headwater.client.cluster import Cluster  # nor is what speaks to nodes

    return Cluster


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
