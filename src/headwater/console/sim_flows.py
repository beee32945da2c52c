"""A user's own flows in the simulator: loaded once in every process, with their undisturbed results."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.loading.catalogue import is_name
from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows
from headwater.model.errors import ConfigError, FlowError
from headwater.operators.sql import Transform
from headwater.sim.flow_story import FlowStory
from headwater.sim.flows import undisturbed
from headwater.sim.story import StoryOutcome, told
from headwater.sim.targets import Outputs
from headwater.sim.troubled import Broken

ROWS: int = 1_000  # of an application's source, unless given
RATE: float = 50.0  # so that rows are under way while faults strike

Prepared = tuple[list[Graph], Mapping[str, Outputs]]
Tell = Callable[[str, int, float], None]  # a flow, its rows so far, and the virtual seconds that they took


@dataclass(frozen=True, slots=True)
class Subject:
    """What is simulated: apps without rows, or the user's flows."""

    flow: str | None = None
    rows: int | None = None
    rate: float | None = None
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.flow is None and (self.rows is not None or self.rate is not None or self.settings):
            raise ConfigError("--rows, --rate and --set are about a flow: say which, as in `headwater sim FLOW.py`")
        if self.rows is not None and self.rows < 1:
            raise ConfigError(f"--rows {self.rows} leaves nothing that could arrive; give at least 1")
        if self.rate is not None and self.rate <= 0:
            raise ConfigError(f"--rate {self.rate:g} lets no row begin; give more than 0")

    @property
    def written(self) -> str:
        """The arguments that replay a story, quoted for a shell."""
        if self.flow is None:
            return ""
        said = (("--rows", self.rows), ("--rate", self.rate), *(("--set", one) for one in self.settings))
        words = (str(word) for name, value in said if value is not None for word in (name, value))
        return shlex.join([self.flow, *words])

    def story(
        self, seed: int, faults: str, nodes: int | None, tell: Callable[[str], None] | None = None
    ) -> StoryOutcome:
        """Simulate the story of a seed."""
        if self.flow is None:
            return told(seed, faults, nodes, tell)
        graphs, expected = prepared(self)
        return FlowStory(graphs, expected, seed, faults, nodes, written=self.written, tell=tell).run()


_PREPARED: dict[Subject, Prepared] = {}  # compiled, and run undisturbed, once per process


def prepared(subject: Subject, tell: Tell = lambda flow, rows, seconds: None) -> Prepared:
    """Return the flows with their results on one undisturbed engine; `tell` reports the progress."""
    if subject not in _PREPARED:
        _PREPARED[subject] = _prepare(subject, tell)
    return _PREPARED[subject]


def _prepare(subject: Subject, tell: Tell) -> Prepared:
    assert subject.flow is not None
    graphs = [compile_flow(flow) for flow in load_flows(subject.flow, _ends(subject), subject.settings)]
    for graph in graphs:
        _refuse_worldly(graph)
    try:
        return graphs, {graph.name: undisturbed(graph, partial(tell, graph.name)) for graph in graphs}
    except Broken as broken:
        raise FlowError(f"{broken}; the simulator needs sources that end, and functions that do not raise") from broken


def _ends(subject: Subject) -> Ends:
    assert subject.flow is not None
    if not is_name(subject.flow):
        return Ends(rows=subject.rows, rate=subject.rate)
    rows, rate = subject.rows, subject.rate
    return Ends(rows=ROWS if rows is None else rows, rate=RATE if rate is None else rate)


def _refuse_worldly(graph: Graph) -> None:
    """Refuse what cannot be simulated: brokers, and Spark SQL."""
    for name, spec in graph.sources.items():
        if spec.blocking:
            raise FlowError(f"source {name!r} ({spec.kind}) of flow {graph.name!r} waits for the world outside")
    for declared in graph.declarations:
        if isinstance(declared.part, Transform):
            raise FlowError(f"{declared.part.kind} {declared.name!r} of flow {graph.name!r} needs Spark")
