"""EdgeWise's setting in virtual time: operators of unequal cost in a row, multiplexed on one core.

A timer feeds a batch of rows at a fixed pace (section 7.1), the scheduler is ours, and a turn lasts as long as its rows
cost. Nothing else takes time. Our departures are left out, so that what shows is the policy: turns are not packed and
follow no rows downstream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from statistics import mean, pstdev

from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.scheduler import SchedulerConfig
from headwater.model.ids import AppId, InstanceId
from tests.engine.pool_world import PoolWorld, Stored

ROWS = 50  # At-most-50
EVERY_US = 100_000


@dataclass(frozen=True)
class Step:
    """One operator: what a row costs it, and how many rows it makes of one."""

    cost_us: int
    yields: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """What a run showed."""

    longest: int  # the most rows that ever waited in one queue
    utilisation: tuple[float, ...]  # of each operator, by equation (11)
    time_shares: tuple[float, ...]  # of the core's busy time
    left: int  # rows that still wait at the end

    @property
    def variation(self) -> float:
        """The coefficient of variation of the utilisations (section 7.3.1)."""
        return pstdev(self.utilisation) / mean(self.utilisation)


def run(steps: Sequence[Step], batch_rows: int, policy: PolicyName, *, batches: int = 30, seed: int = 1) -> Outcome:
    """Run the operators under a policy with the paper's At-most-50."""
    config = SchedulerConfig(
        workers=1, policy=policy, consumption=Consumption("at-most", ROWS), pack=False, follow=False, seed=seed
    )
    world = PoolWorld(config)
    until_us = batches * EVERY_US
    stored = [Stored(cost_us=step.cost_us, yields=step.yields) for step in steps]
    *operators, _ = world.add_app(AppId(1), stored)
    worker = world.join()
    arrival_us = longest = 0
    while world.now_us < until_us:
        ends_us = _end_of_turn(world) if world.running[worker] else until_us
        if arrival_us <= ends_us:
            world.now_us = arrival_us
            world.put(operators[0], batch_rows)
            arrival_us += EVERY_US
        else:
            world.now_us = ends_us
            world.finish(worker)
        longest = max(longest, *(world.stored[one].waiting for one in operators))
    busy = [_totals_us(world, one) for one in operators]
    return Outcome(
        longest,
        tuple(1 - _empty_us(world, one) / world.now_us for one in operators),
        tuple(one / sum(busy) for one in busy),
        sum(world.stored[one].waiting for one in operators),
    )


def _end_of_turn(world: PoolWorld) -> int:
    turn = world.turns[-1]
    since_us = world.scheduler.workers[turn.worker].since_us
    parts = [(part.rows_max, world.stored[part.instance]) for part in turn.assignments]
    return since_us + sum(min(rows_max, stored.waiting) * stored.cost_us for rows_max, stored in parts)


def _totals_us(world: PoolWorld, instance: InstanceId) -> int:
    queue = world.scheduler.queues.find(instance)
    assert queue is not None
    return queue.totals.busy_us


def _empty_us(world: PoolWorld, instance: InstanceId) -> int:
    queue = world.scheduler.queues.find(instance)
    assert queue is not None
    return queue.empty_total_us(world.now_us)


def capacity(steps: Sequence[Step]) -> float:
    """Return the rows of a batch that keep the core busy all the time: a load of 1."""
    rows, cost_us = 1.0, 0.0
    for step in steps:
        cost_us += rows * step.cost_us
        rows *= step.yields
    return EVERY_US / cost_us


@cache
def at_load(steps: tuple[Step, ...], load: float, policy: PolicyName, seed: int = 1) -> Outcome:
    """Run the operators at a share of the core's capacity."""
    return run(steps, max(1, int(load * capacity(steps))), policy, seed=seed)


def backpressure_point(steps: tuple[Step, ...], policy: PolicyName, queue_max: int, loads: Sequence[float]) -> float:
    """Return the load up to which no queue ever exceeds its bound: beyond it, there is backpressure."""
    stable = list(takewhile(lambda load: at_load(steps, load, policy).longest <= queue_max, loads))
    return stable[-1] if stable else 0.0
