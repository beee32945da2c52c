"""A node under one policy that plays flows at any rate: in this process, or in one of its own.

Spark allows one session in a process, and two policies can only be measured in turn, on a machine whose speed changes
within seconds, if the nodes of both are up. So every policy has a process, and its session serves all flows and rates.
"""

import multiprocessing
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Final, Protocol

from bench.feeds import CountingSink
from bench.processes import this_machine, usage
from bench.scheduler_contention import contention
from bench.scheduler_feed import BurstSource, Dial
from bench.scheduler_run import Contender, Run, costs_of, latency_of, operators_of, utilisation_cv
from bench.scheduler_topologies import Topology
from bench.watching import Window, look, processes_of
from headwater.dataflow.stream import source
from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.status import AppState
from headwater.model.errors import EngineError, HeadwaterError
from headwater.model.histogram import Histogram
from headwater.model.ids import InstanceId
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig

START_S: Final = 120.0
ONE_EPOCH_S: Final = 24 * 3600.0  # a pool that is replaced in the middle of a run would show
SAMPLE_S: Final = 0.02  # between two looks at the queues
BEHIND_S_MAX: Final = 1.0  # a flow that is further behind will not catch up, and takes long to drain
DRAIN_S: Final = 15.0
ALL_ROWS: Final = 1.0  # latency is that of every row, not of a sample: a burst has one stamp anyway


def node_config(policy: PolicyName, *, spark: bool) -> NodeConfig:
    """Return one operator per chain, a turn for each queue, a pool of fixed size: the policy by itself."""
    return NodeConfig(
        policy=policy,
        workers=this_machine().cores,
        chaining=False,
        packing=False,
        spares_max=0,
        spark=spark,
        epoch_s=ONE_EPOCH_S,
        sample_share=ALL_ROWS,
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """For how long a rate is played, and how much of that is looked at."""

    warm_s: float = 1.0
    measure_s: float = 3.0


class Player(Protocol):
    """Plays one application at a time."""

    def deploy(self, topology: Topology, rate: float, warm_s: float) -> None:
        """Begin with an application, and let it run for a while so that all code is loaded."""
        ...

    def measure(self, contender: Contender, rate: float, probe: Probe) -> Run:
        """Play a rate, with as many rows in a turn as the contender wants."""
        ...

    def close(self) -> None:
        """End the node."""
        ...


class NodePlayer:
    """A player in this process."""

    def __init__(self, policy: PolicyName, *, spark: bool) -> None:
        """Start the node."""
        self._node = Node(node_config(policy, spark=spark))
        self._node.start()
        self._app: NodeApp | None = None
        self._topology: Topology | None = None
        self._dial = Dial()
        self._names: dict[InstanceId, str] = {}

    def deploy(self, topology: Topology, rate: float, warm_s: float) -> None:
        """Take off what ran before, and wait until there is a worker for every operator that wants one."""
        if self._app is not None:
            self._node.remove(self._app.name)
        self._dial = Dial()
        rows = source(BurstSource(topology.app, self._dial, topology.rows_per_turn), name="input")
        flow = topology.tuned(topology.app.flow(rows, lambda name: CountingSink()))
        self._topology, self._app = topology, self._node.deploy(flow)
        self._names = {
            InstanceId(self._app.id, number): chain.name
            for chain in self._app.graph.chains
            for number in chain.instances
        }
        self._consume(str(topology.rows_per_turn))
        dispatcher = self._node.dispatcher
        if not dispatcher.wait_for_workers(dispatcher.ask(dispatcher.workers_wanted), START_S):
            raise EngineError(f"the workers of {self._node.config.policy} did not come up within {START_S:.0f} s")
        self._dial.rate = rate
        time.sleep(warm_s)
        self._drain()

    def measure(self, contender: Contender, rate: float, probe: Probe) -> Run:
        """Play a rate; what is under way at the end of the run is let through, and counts."""
        assert self._app is not None
        assert self._topology is not None
        assert contender.policy == self._node.config.policy, contender
        self._consume(contender.consumption or str(self._topology.rows_per_turn))
        self._dial.rate = rate
        time.sleep(probe.warm_s)
        app, own = self._app, processes_of(self._node)
        seen = _latencies(app)
        before, workers, node = look(self._node), contention(own.get("workers", ())), contention(own["node"])
        waiting, given_up = self._watch(rate, probe.measure_s)
        window = Window(before, look(self._node))
        workers = contention(own.get("workers", ())).since(workers)
        node = contention(own["node"]).since(node)
        self._drain()
        rows_in, rows_out = (
            getattr(window.after.status.apps[0], name) - getattr(window.before.status.apps[0], name)
            for name in ("rows_in", "rows_out")
        )
        operators = operators_of(window, waiting)
        return Run(
            app=self._topology.name,
            contender=contender,
            rate=round(rate, 2),
            seconds=round(window.seconds, 3),
            rows_in_per_s=round(rows_in / window.seconds, 1),
            rows_out_per_s=round(rows_out / window.seconds, 1),
            latency_ms=latency_of(_latencies(app).since(seen)),
            given_up=given_up,
            utilisation_cv=utilisation_cv(operators),
            operators=operators,
            costs=costs_of(window, workers, node, rows_in),
        )

    def close(self) -> None:
        """Stop the node."""
        self._node.stop()

    def _consume(self, written: str) -> None:
        """Let turns take so many rows from now on: a node of its own for every number would take long to start."""
        scheduler = self._node.dispatcher.scheduler
        config = replace(scheduler.config, consumption=Consumption.parse(written))
        self._node.dispatcher.ask(lambda: setattr(scheduler, "config", config))

    def _watch(self, rate: float, seconds: float) -> tuple[dict[str, list[int]], bool]:
        """Look at the queues until the time is over, or the flow is hopelessly behind."""
        waiting: dict[str, list[int]] = {name: [] for name in self._names.values()}
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(SAMPLE_S)
            self._check()
            behind_s = 0.0
            for name, (rows, rows_per_event) in self._queued().items():
                waiting[name].append(rows)
                behind_s += rows / (rows_per_event * rate) if rows else 0.0
            if behind_s > BEHIND_S_MAX:
                return waiting, True
        return waiting, False

    def _queued(self) -> dict[str, tuple[int, float]]:
        """Return how many rows wait for each operator, and how many it gets for each that enters the flow."""
        assert self._app is not None
        entered = max(1, sum(task.rows for task in self._app.sources))
        waiting, put = dict.fromkeys(self._names.values(), 0), dict.fromkeys(self._names.values(), 0)
        for instance, name in self._names.items():
            queue = self._node.dispatcher.scheduler.queues.find(instance)
            if queue is not None:
                waiting[name] += queue.waiting
                put[name] += queue.put_rows
        return {name: (rows, put[name] / entered) for name, rows in waiting.items()}

    def _drain(self) -> None:
        """Let the source rest until nothing waits; what cannot be drained in time is thrown away with its flow."""
        assert self._app is not None
        assert self._topology is not None
        self._dial.rate = 0.0
        deadline = time.monotonic() + DRAIN_S
        while self._busy():
            self._check()
            if time.monotonic() > deadline:
                self.deploy(self._topology, 0.0, 0.0)
                return
            time.sleep(SAMPLE_S)

    def _busy(self) -> bool:
        """Whether any row is on its way; the sinks' queues count too."""
        assert self._app is not None
        number, scheduler = self._app.id, self._node.dispatcher.scheduler
        return bool(
            self._node.dispatcher.ask(
                lambda: any(
                    queue.has_work or queue.runs_on is not None
                    for queue in scheduler.queues.all()
                    if queue.instance.app == number
                )
            )
        )

    def _check(self) -> None:
        assert self._app is not None
        if self._app.state is AppState.FAILED:
            raise EngineError(f"{self._app.name} failed under {self._node.config.policy}: {self._app.error}")


def _latencies(app: NodeApp) -> Histogram:
    together = Histogram()
    for task in app.sinks:
        together.merge(task.latency)
    return together


class ProcessPlayer:
    """A player in a process of its own, which ends with the connection to it."""

    def __init__(self, policy: PolicyName) -> None:
        """Start the process and wait for its node."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, policy), name=f"player {policy}")
        self._process.start()
        theirs.close()
        self._answer()

    def deploy(self, topology: Topology, rate: float, warm_s: float) -> None:
        """Let the process do it."""
        self._connection.send(("deploy", (topology, rate, warm_s)))
        self._answer()

    def measure(self, contender: Contender, rate: float, probe: Probe) -> Run:
        """Let the process do it."""
        before, began = usage(), time.monotonic()
        self._connection.send(("measure", (contender, rate, probe)))
        run = self._answer()
        assert isinstance(run, Run), run
        others = usage().others_since(before, time.monotonic() - began)  # than all nodes: those that rest are ours
        return replace(run, costs=run.costs | {"others_cores": round(others, 3)})

    def close(self) -> None:
        """Hang up, and wait for the node to end."""
        self._connection.close()
        self._process.join()

    def _answer(self) -> object:
        try:
            answer = self._connection.recv()
        except EOFError:
            raise EngineError(f"the process of {self._process.name} ended; see what it printed") from None
        if isinstance(answer, EngineError):
            raise answer
        return answer


def _serve(connection: Connection, policy: PolicyName) -> None:
    """Do what the other side asks for, until it hangs up."""
    try:
        player = NodePlayer(policy, spark=True)
    except HeadwaterError as failure:
        connection.send(EngineError(str(failure)))
        return
    try:
        connection.send(None)
        while True:
            method, arguments = connection.recv()
            connection.send(getattr(player, method)(*arguments))
    except (EOFError, KeyboardInterrupt):
        pass
    except HeadwaterError as failure:
        connection.send(EngineError(str(failure)))
    finally:
        player.close()


def player_for(policy: PolicyName, *, spark: bool) -> Player:
    """Return a player: in a process of its own if it needs Spark."""
    return ProcessPlayer(policy) if spark else NodePlayer(policy, spark=False)
