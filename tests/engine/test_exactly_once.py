"""Whatever happens to workers, every row has its effect exactly once, and the ledger balances at every moment."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headwater.engine.turn import Prepared
from headwater.model.ids import InstanceId
from headwater.operators.functions import Row
from tests.engine.flows import branched, branching
from tests.engine.small_node import ALL, SmallNode

SINKS = ("even", "odd", "copies", "dead")


class Turmoil(RuleBasedStateMachine):
    """One app, many workers that take rows, die, come too late or run the same turn twice."""

    running = Bundle("running")

    def __init__(self) -> None:
        """Begin with an empty queue."""
        super().__init__()
        self.node = SmallNode(branching())
        self.fed: list[Row] = []
        self.written: dict[str, list[Row]] = {sink: [] for sink in SINKS}

    @rule(keys=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def rows_arrive(self, keys: list[int]) -> None:
        """The source stores a batch."""
        rows = [{"id": len(self.fed) + index, "key": key} for index, key in enumerate(keys)]
        self.fed += rows
        self.node.feed(rows)

    @rule(draw=st.integers(0, 99), rows_max=st.integers(1, 8))
    def turn(self, draw: int, rows_max: int) -> None:
        """A worker takes, computes, commits and reports."""
        self.node.turn(self._any_instance(draw), rows_max)

    @rule(rows_max=st.integers(1, 8))
    def packed_turn(self, rows_max: int) -> None:
        """A worker runs all instances in one turn."""
        self.node.pack(*((instance, rows_max) for instance in self.node.instances))

    @rule(target=running, draw=st.integers(0, 99), rows_max=st.integers(1, 8))
    def begin_turn(self, draw: int, rows_max: int) -> tuple[Prepared | None, bytes]:
        """A worker has computed and is about to commit: perhaps now, later, twice or never."""
        instance = self._any_instance(draw)
        if self.node.queue(instance).waiting_rows == 0:
            return None, self.node.term
        return self.node.prepared(instance, rows_max), self.node.term

    @rule(turn=running)
    def commit_and_perhaps_again(self, turn: tuple[Prepared | None, bytes]) -> None:
        """The worker commits; it stays in the bundle, so it may do so once more: the same turn given twice."""
        prepared, term = turn
        if prepared is not None:
            self.node.commit(prepared, term=term)

    @rule(turn=consumes(running))
    def die_before_commit(self, turn: tuple[Prepared | None, bytes]) -> None:
        """The worker is gone, and what it computed with it."""

    @rule()
    def another_node_takes_over(self) -> None:
        """Workers of the old term live on and commit too late."""
        self.node.begin_term()

    @rule(bytes_wanted=st.sampled_from([1, 300, ALL]))
    def shed(self, bytes_wanted: int) -> None:
        """The disk is full: the oldest rows behind the head of the first queue are dropped."""
        before = {row["id"] for row in self.node.waiting("repeat")}
        self.node.shed("repeat", bytes_wanted)
        gone = before - {row["id"] for row in self.node.waiting("repeat")}
        self.fed = [row if row["id"] not in gone else {**row, "shed": True} for row in self.fed]

    @rule(rows_max=st.integers(1, 20), bytes_wanted=st.sampled_from([1, 300, ALL]))
    def shed_during_a_turn(self, rows_max: int, bytes_wanted: int) -> None:
        """Rows that a worker has computed on are dropped before it commits."""
        if self.node.queue("repeat").waiting_rows:
            running = self.node.prepared("repeat", rows_max)
            self.shed(bytes_wanted)
            self.node.commit(running)

    @rule(sink=st.sampled_from(SINKS), rows_max=st.integers(1, 9))
    def write(self, sink: str, rows_max: int) -> None:
        """A sink takes some rows."""
        self.written[sink] += self.node.write_out(sink, rows_max)

    @invariant()
    def the_ledger_balances(self) -> None:
        """Every row is somewhere."""
        ledger = self.node.ledger()
        assert ledger.balanced, ledger

    def teardown(self) -> None:
        """Let everything through and compare with what a plain loop makes of the same rows."""
        self.node.settle()
        for sink in SINKS:
            self.written[sink] += self.node.write_out(sink)
        self.the_ledger_balances()
        expected = branched([row for row in self.fed if "shed" not in row])
        assert [row["id"] for row in self.written["copies"]] == expected["copies"]
        assert [row["error"] for row in self.written["dead"]] == expected["dead"]
        for sink in ("even", "odd"):
            assert _by_key(self.written[sink]) == _grouped(expected[sink])

    def _any_instance(self, draw: int) -> InstanceId:
        """Return any instance, half of the time the first, where rows are shed."""
        often = [self.node.instance("repeat")] * len(self.node.instances)
        return [*often, *self.node.instances][draw % (2 * len(self.node.instances))]


def _by_key(rows: list[Row]) -> dict[Any, list[tuple[int, int]]]:
    """What a sink got for every key, in order."""
    return _grouped([(row["key"], row["id"], row["nth"]) for row in rows])


def _grouped(rows: list[tuple[Any, int, int]]) -> dict[Any, list[tuple[int, int]]]:
    groups: dict[Any, list[tuple[int, int]]] = {}
    for key, number, nth in rows:
        groups.setdefault(key, []).append((number, nth))
    return groups


TestTurmoil = Turmoil.TestCase
TestTurmoil.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
