"""A row that kills its worker is found by halving and condemned after few deaths; all others get through."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.policies import Consumption
from headwater.engine.scheduler import DEATHS_TO_CONDEMN, SchedulerConfig
from headwater.model.ids import AppId, InstanceId, WorkerId
from tests.engine.pool_world import PoolWorld, Stored

APP = AppId(1)
DEATHS_MAX = 60  # of a queue of 2,000 rows: a few for each halving, and three alone with the row


class Cursed:
    """A pool in which some rows kill every worker that runs them. Rows are known by their place in the queue."""

    def __init__(self, rows: int, poison: set[int], consumption: str = "adaptive", innocent: int = 0) -> None:
        """One operator with so many rows, some of them poison, and so many other apps beside it."""
        self.poison = poison
        self.condemned: list[int] = []
        self.deaths = 0
        self.world = PoolWorld(SchedulerConfig(workers=1, consumption=Consumption.parse(consumption)))
        (self.first, _) = self.world.add_app(APP, [Stored(put=rows)])
        for other in range(innocent):
            self.world.add_app(AppId(10 + other), [Stored(put=5)])
        self.world.join()

    def run(self, turns_max: int = 2_000) -> None:
        """Let workers work and die until nothing waits."""
        for _ in range(turns_max):
            if not any(self.world.waiting().values()):
                return
            (worker,) = self.world.running
            if self._kills(worker):
                self.deaths += 1
                self.world.lose(worker)
                self.world.join()
            else:
                self._note_verdict(worker)
                self.world.finish(worker)
        raise AssertionError(f"after {turns_max} turns {self.world.waiting()} still wait, {self.deaths} workers died")

    def _kills(self, worker: WorkerId) -> bool:
        head = self.world.stored[self.first].taken
        return any(
            part.instance == self.first and not part.condemn and self.poison & set(range(head, head + part.rows_max))
            for part in self.world.running[worker]
        )

    def _note_verdict(self, worker: WorkerId) -> None:
        for part in self.world.running[worker]:
            if part.condemn:
                assert part.rows_max == 1, "only a single row can be condemned"
                assert part.instance == self.first, "an innocent queue was condemned"
                self.condemned.append(self.world.stored[self.first].taken)


@pytest.mark.parametrize("place", [0, 1, 31, 63, 64, 1_000, 1_999])
@pytest.mark.parametrize("consumption", ["adaptive", "all", "50"])
def test_the_row_that_kills_is_condemned_and_everything_else_gets_through(place: int, consumption: str) -> None:
    """Wherever in the queue it is."""
    pool = Cursed(2_000, {place}, consumption)
    pool.run()
    assert pool.condemned == [place]
    assert pool.world.stored[pool.first].taken == 2_000
    assert DEATHS_TO_CONDEMN <= pool.deaths <= DEATHS_MAX


@settings(max_examples=40, deadline=None)
@given(poison=st.sets(st.integers(0, 199), min_size=1, max_size=5))
def test_several_rows_that_kill_are_all_found_and_no_other(poison: set[int]) -> None:
    """Also neighbours."""
    pool = Cursed(200, poison)
    pool.run()
    assert pool.condemned == sorted(poison)
    assert pool.deaths <= DEATHS_MAX * len(poison)


def test_a_worker_that_dies_once_condemns_nobody() -> None:
    """The first death may be anyone's fault: memory, the kernel, a person."""
    pool = Cursed(100, set())
    (worker,) = pool.world.running
    pool.world.lose(worker)
    pool.world.join()
    pool.run()
    assert pool.condemned == []


def test_rows_of_other_apps_in_the_same_pack_are_not_condemned() -> None:
    """They died with it once, and ran alone after that."""
    pool = Cursed(1, {0}, innocent=5)
    pool.run()
    assert pool.condemned == [0]
    assert all(stored.waiting == 0 for one, stored in pool.world.stored.items() if one.number == 0)


def test_full_turns_return_once_the_row_is_gone() -> None:
    """The limit of the search is lifted step by step."""
    pool = Cursed(50_000, {3}, "all")
    pool.run()
    assert max(part.rows_max for turn in pool.world.turns[-3:] for part in turn.assignments) > 1_000


def test_a_queue_under_suspicion_runs_alone_until_it_is_cleared() -> None:
    """Otherwise the row is not alone when the worker dies on it."""
    pool = Cursed(1, {0}, innocent=5)
    for _ in range(12):
        (worker,) = pool.world.running
        if pool._kills(worker):
            queue = pool.world.scheduler.queues.find(pool.first)
            assert queue is not None
            assert queue.rows_limit is None or len(pool.world.running[worker]) == 1
            pool.world.lose(worker)
            pool.world.join()
            for other in range(5):
                pool.world.put(InstanceId(AppId(10 + other), 0), 1)
        else:
            pool.world.finish(worker)


def test_workers_that_are_lost_with_their_pool_condemn_nobody_however_often() -> None:
    """As when Spark's JVM is killed again and again while one row takes its time."""
    pool = Cursed(1, set())
    for _ in range(3 * DEATHS_TO_CONDEMN):
        (worker,) = pool.world.running
        pool.world.lose(worker, with_pool=True)
        pool.world.join()
    pool.run()
    assert (pool.condemned, pool.world.stored[pool.first].taken) == ([], 1)
