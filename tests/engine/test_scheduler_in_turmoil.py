"""Workers join, leave and die, reports come late or twice, apps come and go: the scheduler keeps its promises.

After every event the world checks that no instance runs twice and nobody is idle while there is work; at the end,
with the turmoil over, every row of every app that may still run gets through.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headwater.engine.events import TurnEnded
from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.reports import TurnReport
from headwater.engine.scheduler import STALLED_US, SchedulerConfig
from headwater.engine.turn import Assignment
from headwater.model.ids import AppId, InstanceId, WorkerId
from tests.engine.pool_world import PoolWorld, Stored, in_trouble, store_full

APPS_MAX = 3
draws = st.integers(0, 1_000)


class Turmoil(RuleBasedStateMachine):
    """A pool in a bad hour."""

    def __init__(self) -> None:
        """Begin before anything is configured."""
        super().__init__()
        self.world = PoolWorld()
        self.heard: list[tuple[WorkerId, list[TurnReport]]] = []

    @initialize(
        policy=st.sampled_from([name for name in PolicyName if name is not PolicyName.ONE_WORKER_PER_OPERATOR]),
        consumption=st.sampled_from(["adaptive", "all", "half", "3"]),
    )
    def configure(self, policy: PolicyName, consumption: str) -> None:
        """Any policy, any consumption."""
        self.world = PoolWorld(
            SchedulerConfig(workers=2, policy=policy, consumption=Consumption.parse(consumption), spares_max=2)
        )

    @rule(draw=draws, costs=st.lists(st.sampled_from([1, 100, 5_000]), min_size=1, max_size=3))
    def add_app(self, draw: int, costs: list[int]) -> None:
        """An app is deployed; its number may be that of one that is gone, but not of one that still runs."""
        app = AppId(draw % APPS_MAX)
        if not any(one.app == app for one in self.world.stored) and not self._runs(app):
            self.world.halted.discard(app)
            self.world.add_app(app, [Stored(cost_us=cost) for cost in costs])

    @precondition(lambda self: self.world.stored)
    @rule(draw=draws)
    def remove_app(self, draw: int) -> None:
        """Perhaps while its operators run."""
        self.world.remove_app(self._any_queue(draw).app)

    @precondition(lambda self: self.world.stored)
    @rule(draw=draws)
    def halt_app(self, draw: int) -> None:
        """Its rows stay where they are."""
        self.world.halt(self._any_queue(draw).app)

    @precondition(lambda self: self.world.stored)
    @rule(draw=draws, rows=st.integers(1, 200))
    def rows_arrive(self, draw: int, rows: int) -> None:
        """A source brings rows."""
        self.world.put(InstanceId(self._any_queue(draw).app, 0), rows)

    @precondition(lambda self: self.world.stored)
    @rule(draw=draws)
    def rows_leave(self, draw: int) -> None:
        """A sink takes its rows."""
        app = self._any_queue(draw).app
        self.world.write_out(max(one for one in self.world.stored if one.app == app))

    @precondition(lambda self: len(self.world.running) < 5)
    @rule(spare=st.booleans())
    def worker_joins(self, spare: bool) -> None:
        """One more asks for turns."""
        self.world.join(spare=spare)

    @precondition(lambda self: self.world.running)
    @rule(draw=draws)
    def worker_is_dismissed(self, draw: int) -> None:
        """Its epoch is over."""
        self.world.dismiss(self._any_worker(draw))

    @precondition(lambda self: self.world.running)
    @rule(draw=draws, has_committed=st.booleans())
    def worker_dies(self, draw: int, has_committed: bool) -> None:
        """Before or after its commit; its report may be heard later all the same."""
        worker = self._any_worker(draw)
        if has_committed:
            self.heard.append((worker, self.world.commit(worker)))
        self.world.lose(worker)

    @precondition(lambda self: self._busy())
    @rule(draw=draws)
    def turn_ends(self, draw: int) -> None:
        """A worker commits, reports and asks for the next turn."""
        busy = self._busy()
        worker = busy[draw % len(busy)]
        self.heard.append((worker, self.world.finish(worker)))

    @precondition(lambda self: self._busy())
    @rule(draw=draws)
    def turn_ends_in_trouble(self, draw: int) -> None:
        """A user's function raised on the first of its rows; the others of the pack are through."""
        busy = self._busy()
        worker = busy[draw % len(busy)]
        first = self.world.running[worker][0].instance
        if first in self.world.stored:
            reports = [self.world.commit_part(part) for part in self._rest(worker)]
            self.world.end(worker, [in_trouble(first, self.world.stored[first].taken), *reports])

    @precondition(lambda self: self._busy())
    @rule(draw=draws)
    def turn_finds_the_store_full(self, draw: int) -> None:
        """Nothing of it was committed."""
        busy = self._busy()
        worker = busy[draw % len(busy)]
        parts = [part.instance for part in self.world.running[worker] if part.instance in self.world.stored]
        if not any(one.app in self.world.halted for one in parts):
            self.world.end(worker, [store_full(one, self.world.stored[one].taken) for one in parts])

    @precondition(lambda self: self.heard)
    @rule(draw=draws)
    def old_news_arrive_again(self, draw: int) -> None:
        """A report of a worker that is gone, once more; its app may be gone and another have its number."""
        worker, reports = self.heard[draw % len(self.heard)]
        if worker not in self.world.running and all(self._is_plausible(one) for one in reports):
            self.world.handle(TurnEnded(worker, reports))

    @rule(later_us=st.sampled_from([0, 1_000, STALLED_US, 600_000]))
    def time_passes(self, later_us: int) -> None:
        """Spares may be hired, full stores tried again."""
        before = self.world.spares_hired
        self.world.tick(later_us)
        if self.world.spares_hired > before:
            assert all(self.world.running.values()), "a spare was hired though a worker is idle"

    def teardown(self) -> None:
        """With a worker that lives, all that may run gets through, and the books agree with the store."""
        self.world.join()
        self.world.settle()
        for instance, stored in self.world.stored.items():
            queue = self.world.scheduler.queues.find(instance)
            assert queue is not None
            assert (queue.put_rows, queue.taken_rows) == (stored.put, stored.taken)

    def _busy(self) -> list[WorkerId]:
        return [worker for worker, turn in self.world.running.items() if turn]

    def _runs(self, app: AppId) -> bool:
        return any(part.instance.app == app for turn in self.world.running.values() for part in turn)

    def _rest(self, worker: WorkerId) -> list[Assignment]:
        return [part for part in self.world.running[worker][1:] if part.instance in self.world.stored]

    def _is_plausible(self, one: TurnReport) -> bool:
        """Whether the numbers can still be true: a number that an app has again begins at nothing."""
        stored = self.world.stored.get(InstanceId(AppId(one.app), one.instance))
        filled = [(self.world.stored.get(InstanceId(AppId(one.app), part.instance)), part) for part in one.filled]
        return (stored is None or one.taken_rows <= stored.taken) and all(
            below is None or part.put_rows <= below.put for below, part in filled
        )

    def _any_queue(self, draw: int) -> InstanceId:
        queues = sorted(self.world.stored)
        return queues[draw % len(queues)]

    def _any_worker(self, draw: int) -> WorkerId:
        workers = sorted(self.world.running)
        return workers[draw % len(workers)]


TestTurmoil = Turmoil.TestCase
TestTurmoil.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
