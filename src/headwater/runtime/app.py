"""An app as a node has it: the flow, its open sources and sinks, and its state."""

import threading
from dataclasses import dataclass, field

from headwater.dataflow.graph import Graph
from headwater.engine.status import AppState
from headwater.model.errors import HeadwaterError
from headwater.model.ids import AppId
from headwater.runtime.sinks import SinkTask
from headwater.runtime.sources import SourceTask


@dataclass(slots=True)
class NodeApp:
    """An app on this node."""

    id: AppId
    graph: Graph
    codes: tuple[int, ...]  # the number of each chain's code in the store
    sources: list[SourceTask]
    sinks: list[SinkTask]
    started_us: int
    state: AppState = AppState.RUNNING
    error: HeadwaterError | None = None
    ended_us: int | None = None
    draining: bool = False  # its sources are not read any more, and its rows drain
    settled: bool = False  # its sources and sinks are closed
    is_part: bool = False  # other nodes have the rest of it, so its end cannot be seen here
    kept_as: str = ""  # its name in the store, if that is not the flow's
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return self.graph.name
