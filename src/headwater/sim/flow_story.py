"""The story of one seed with rows: flows run under faults, and their sinks must get the expected rows.

The expected rows are those that the same flows write on one undisturbed engine. Rows may come in another order where
several streams meet; the results of a flow that depend on that order, or on the clock, differ here as on real machines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headwater.dataflow.graph import Graph
from headwater.model.time import SECOND
from headwater.sim.faults import Fault
from headwater.sim.flows import FlowWorld
from headwater.sim.story import Failure, Story, StoryOutcome
from headwater.sim.targets import Outputs
from headwater.sim.troubled import Broken

DONE_S: Final = 3_600  # of virtual time after healing, for all rows to arrive


class FlowStory(Story):
    """One seed, from the first node to the last row."""

    def __init__(
        self,
        graphs: Sequence[Graph],
        expected: Mapping[str, Outputs],
        seed: int,
        faults: str,
        nodes: int | None,
        *,
        written: str = "",
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Draw the world; `written` is the user's name for the flows."""
        super().__init__(seed, faults, nodes, tell)
        self._graphs, self._expected, self._written = graphs, expected, written

    @property
    def world(self) -> FlowWorld:
        """The world in which it happens."""
        assert isinstance(self._world, FlowWorld)
        return self._world

    def _make_world(self, seed: int, **details: Any) -> FlowWorld:
        return FlowWorld(seed, **details)

    def _acts(self) -> Sequence[Callable[[], None]]:
        return (self._grow, self._submit, self._suffer, self._heal, self._finish)

    def _troubles(self) -> Sequence[Fault]:
        return self._faults

    def _submit(self) -> None:
        for graph in self._graphs:
            self.world.submit_flow(graph)
        self.world.run(self._rng.uniform(0, 6))

    def _finish(self) -> None:
        """Demand that every row arrives, and that sinks get what an undisturbed node writes."""
        world = self.world
        done = world.run_until(lambda: world.is_done() or bool(world.troubles()), at_most=DONE_S)
        if world.troubles():
            raise Broken(f"a function of the flow raised: {'; '.join(world.troubles())}")
        if not done:
            ledgers = "; ".join(f"{app}: {world.ledger(app)}" for app in world.graphs)
            raise Broken(f"rows are still under way {DONE_S} s after healing: {ledgers}", *world.concerned())
        world.check_outputs(self._expected)

    def _outcome(self, failure: Failure | None) -> StoryOutcome:
        return replace(super()._outcome(failure), flow=self._written)

    @property
    def rows_out(self) -> int:
        """Rows that all sinks have written."""
        return sum(self.world.targets.rows())

    @property
    def virtual_s(self) -> float:
        """The seconds of virtual time so far."""
        return self.world.timeline.now / SECOND
