"""Which queue runs next, and how many of its rows.

The longest queue runs first: the wait in a queue grows without bound as its operator nears saturation, so the turns
have to go to the heaviest operator (EdgeWise, sections 4.1 and 5.1). The other policies are for comparison. A policy
chooses from a snapshot of the ready queues; it knows nothing of workers, Spark or clocks.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from random import Random
from typing import ClassVar, Final, Protocol

from headwater.engine.queues import Queue
from headwater.model.errors import ConfigError
from headwater.model.ids import InstanceId

PATIENCE_US: Final = 50_000  # a queue that was ready for longer may go before longer ones ...
PATIENT_SHARE: Final = 4  # ... in every fourth choice, so that an overloaded neighbour cannot starve it
FIXED_SHARE: Final = 4  # a turn may last so many times its fixed cost, of which at most a quarter is then lost
PROFILE_CHOICES: Final = 32  # for which a priority that follows from a profile is good: a few milliseconds


class PolicyName(StrEnum):
    """The policies a user can ask for."""

    LONGEST_QUEUE = "longest-queue"
    RANDOM = "random"
    ROUND_ROBIN = "round-robin"
    MIN_LATENCY = "min-latency"
    MIN_MEMORY = "min-memory"
    ONE_WORKER_PER_OPERATOR = "one-worker-per-operator"


class Policy(Protocol):
    """Orders the ready queues."""

    def choose(
        self, ready: Mapping[InstanceId, Queue], count: int, find: Callable[[InstanceId], Queue | None], now_us: int
    ) -> Sequence[Queue]:
        """Return up to `count` queues, the most urgent first."""
        ...


class LongestQueue:
    """EdgeWise's own: the queue with the most waiting rows."""

    def __init__(self) -> None:
        self._choices = 0

    def choose(
        self, ready: Mapping[InstanceId, Queue], count: int, find: Callable[[InstanceId], Queue | None], now_us: int
    ) -> Sequence[Queue]:
        """Return the longest; at times the one that has been ready longest, if that is too long."""
        self._choices += 1
        if count == 1:
            chosen = [max(ready.values(), key=attrgetter("waiting"))]
        else:
            chosen = heapq.nlargest(count, ready.values(), key=attrgetter("waiting"))
        if self._choices % PATIENT_SHARE == 0:
            oldest = min(ready.values(), key=attrgetter("ready_since_us"))
            if now_us - oldest.ready_since_us > PATIENCE_US:  # in front: of a pack, only the first is sure to run
                chosen = [oldest, *(queue for queue in chosen if queue is not oldest)][:count]
        return chosen


class RandomQueue:
    """Any ready queue: shows what a worker pool gains without a scheduler (EdgeWise, section 7.2)."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def choose(
        self, ready: Mapping[InstanceId, Queue], count: int, find: Callable[[InstanceId], Queue | None], now_us: int
    ) -> Sequence[Queue]:
        return self._rng.sample(list(ready.values()), min(count, len(ready)))


class RoundRobin:
    """Every ready queue in its turn."""

    def __init__(self) -> None:
        self._last = InstanceId(-1, -1)  # type: ignore[arg-type]

    def choose(
        self, ready: Mapping[InstanceId, Queue], count: int, find: Callable[[InstanceId], Queue | None], now_us: int
    ) -> Sequence[Queue]:
        """Return the next ones behind the last that was chosen."""
        ordered = sorted(ready)
        behind = [instance for instance in ordered if instance > self._last]
        chosen = (behind + ordered)[: min(count, len(ordered))]
        self._last = chosen[-1]
        return [ready[instance] for instance in chosen]


class ByPriority:
    """The queue whose operator has the highest priority, by what was measured of it.

    EdgeWise's rivals get their priorities once, from profiling (section 3.4). Here they are computed anew from time to
    time: costs change slowly, and to walk the graph at every choice took ten times as long as the longest queue does.
    """

    def __init__(self, priority: "Priority") -> None:
        self._priority = priority
        self._choices = 0
        self._known: dict[InstanceId, tuple[float, ...]] = {}

    def choose(
        self, ready: Mapping[InstanceId, Queue], count: int, find: Callable[[InstanceId], Queue | None], now_us: int
    ) -> Sequence[Queue]:
        """Return the queues of the highest priority."""
        if self._choices % PROFILE_CHOICES == 0:
            self._known.clear()
        self._choices += 1
        for instance, queue in ready.items():
            if instance not in self._known:
                self._known[instance] = self._priority(queue, find)
        return [ready[instance] for instance in heapq.nlargest(count, ready, key=self._known.__getitem__)]


Priority = Callable[[Queue, Callable[[InstanceId], Queue | None]], tuple[float, ...]]


def min_latency(queue: Queue, find: Callable[[InstanceId], Queue | None]) -> tuple[float, ...]:
    """Later operators first, old rows before new ones (Carney et al.); ties go to the cheaper path to the sink."""
    return queue.stage, -_cost_to_sink(queue, find, {})


def min_memory(queue: Queue, find: Callable[[InstanceId], Queue | None]) -> tuple[float, ...]:
    """Chain (Babcock et al.): the operators that free the most memory per unit of time."""
    return (steepest_descent(queue, find),)


def _cost_to_sink(queue: Queue, find: Callable[[InstanceId], Queue | None], known: dict[InstanceId, float]) -> float:
    """Return the expected compute time of one row from here to the sinks; `known` keeps it for shared ways."""
    if queue.instance not in known:
        behind = [found for found in map(find, queue.downstream) if found is not None and found.scheduled]
        below = sum(_cost_to_sink(found, find, known) for found in behind) / max(1, len(behind))
        known[queue.instance] = _cost(queue) + queue.rows_out_per_row * below
    return known[queue.instance]


def steepest_descent(queue: Queue, find: Callable[[InstanceId], Queue | None]) -> float:
    """Return the slope of the lower envelope of the progress chart that starts at this operator.

    A row that enters here has size 1. After each further operator a part of it is left, and so much time has passed;
    the slope to the lowest point reachable is Chain's priority.
    """
    best, size, spent = 0.0, 1.0, 0.0
    at: Queue | None = queue
    while at is not None:
        spent += size * _cost(at)
        size *= at.rows_out_per_row
        behind = [found for found in map(find, at.downstream) if found is not None]
        at = behind[0] if behind else None
        if at is None or not at.scheduled:  # rows that reach a sink leave the node
            size, at = 0.0, None
        best = max(best, (1.0 - size) / spent)
    return best


def _cost(queue: Queue) -> float:
    return max(queue.cost.row_us, 0.01)


def policy_named(name: PolicyName, rng: Random) -> Policy:
    """Return a policy by its name."""
    match name:
        case PolicyName.LONGEST_QUEUE | PolicyName.ONE_WORKER_PER_OPERATOR:
            return LongestQueue()  # with one worker per operator, each has only one queue to choose from
        case PolicyName.RANDOM:
            return RandomQueue(rng)
        case PolicyName.ROUND_ROBIN:
            return RoundRobin()
        case PolicyName.MIN_LATENCY:
            return ByPriority(min_latency)
        case PolicyName.MIN_MEMORY:
            return ByPriority(min_memory)


@dataclass(frozen=True, slots=True)
class Consumption:
    """How many waiting rows a turn takes (EdgeWise, section 4.2).

    `adaptive` is at-most-N with an N of its own for every operator: doubled while full turns are much shorter than
    `TURN_US`, cut when one is much longer. A fixed N is either too small at saturation, where the cost of a turn weighs
    on few rows, or too large for an operator that takes long for a row.
    """

    rule: str = "adaptive"  # adaptive, all, half or at-most
    rows: int = 50

    ROWS_MAX: ClassVar[int] = 20_000
    TURN_US: ClassVar[int] = 10_000  # forty times the overhead of a turn, short beside a p99 of 100 ms
    TURN_US_MAX: ClassVar[int] = 100_000  # where the fixed part of a turn is long

    def __post_init__(self) -> None:
        if self.rule not in ("adaptive", "all", "half", "at-most"):
            raise ConfigError(f"consumption {self.rule!r} is unknown; use adaptive, all, half or a number of rows")
        if self.rows < 1:
            raise ConfigError(f"a turn cannot take at most {self.rows} rows; use 1 or more")

    @classmethod
    def parse(cls, written: str) -> "Consumption":
        """Read `adaptive`, `all`, `half` or a number."""
        return cls("at-most", int(written)) if written.strip().isdigit() else cls(written)

    def rows_for(self, queue: Queue) -> int:
        """Return how many rows a turn of this queue takes."""
        if queue.on_driver:  # a Spark job costs tens of milliseconds, whatever it works on
            return max(1, min(queue.waiting, queue.rows_limit or self.ROWS_MAX))
        match self.rule:
            case "all":
                wanted = queue.waiting
            case "half":
                wanted = -(-queue.waiting // 2)
            case "at-most":
                wanted = min(queue.waiting, self.rows)
            case _:
                wanted = min(queue.waiting, queue.rows_wanted)
        wanted = max(1, wanted)  # a queue of marks alone has no rows yet; one may come before the turn begins
        return wanted if queue.rows_limit is None else min(wanted, queue.rows_limit)

    def rows_at_most(self, queue: Queue) -> int:
        """Return how many rows a turn takes of a queue that is still to be filled."""
        match self.rule:
            case "all" | "half":
                return self.ROWS_MAX
            case "at-most":
                return self.rows
            case _:
                return queue.rows_wanted

    def learn(self, queue: Queue, rows: int, turn_us: int) -> None:
        """Adapt the rows of the next turn to the duration of this one.

        A turn that is long however few rows it takes (an operator that starts a library, a loaded machine) would be cut
        to one row, and its queue never emptied. So a turn may last a multiple of its fixed cost.
        """
        wanted_us = int(min(max(self.TURN_US, FIXED_SHARE * queue.cost.fixed_us), self.TURN_US_MAX))
        if turn_us > 2 * wanted_us:
            queue.rows_wanted = max(1, rows * wanted_us // turn_us)
        elif turn_us < wanted_us // 2 and rows >= queue.rows_wanted:
            queue.rows_wanted = min(self.ROWS_MAX, queue.rows_wanted * 2)
