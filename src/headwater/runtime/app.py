"""An app as a node has it: the flow, what is open of it, and where it is in its life."""

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
    codes: tuple[int, ...]  # the number under which the code of each chain is kept
    sources: list[SourceTask]
    sinks: list[SinkTask]
    started_us: int
    state: AppState = AppState.RUNNING
    error: HeadwaterError | None = None
    ended_us: int | None = None
    draining: bool = False  # its sources are asked no more, and what is under way is let through
    settled: bool = False  # its sources and sinks are closed
    is_part: bool = False  # the rest of it is on other nodes, so that its end cannot be seen here
    kept_as: str = ""  # the name under which the store has it, if that is not the flow's
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The flow's name."""
        return self.graph.name
