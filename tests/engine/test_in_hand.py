"""A turn that follows its rows is handed them: they never lie in the queue, and all of it is one commit."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.dataflow.stream import Flow, flow
from headwater.engine.turn import Assignment
from headwater.model.batch import Stamp
from headwater.model.ids import InstanceId
from headwater.operators.state import KeyedState
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.flows import branching, count_visits, ids, numbered, stumble
from tests.engine.small_node import ALL, SmallNode
from tests.engine.test_event_time import batch, held_back, seconds


def line(count: Callable[[pa.RecordBatch, KeyedState], Any] = count_visits) -> Flow:
    """Two chains, one behind the other: rows pass, and are numbered per key."""
    passed = rows_of_any_kind().map(lambda rows: rows, name="pass")
    return flow("line", passed.key_by("key").stateful(count, name="count").sink(Wall(), name="out"))


def keyed(*numbers: int) -> list[dict[str, Any]]:
    """Return rows of two keys."""
    return [{"id": one, "key": "ab"[one % 2]} for one in numbers]


def all_in_one(node: SmallNode, rows_max: int = ALL) -> dict[int, Any]:
    """Run every instance in one turn, by stage."""
    chains = sorted(node.graph.chains, key=lambda chain: chain.stage)
    return node.pack(*((InstanceId(node.app, one), rows_max) for chain in chains for one in chain.instances))


def test_rows_that_are_followed_never_lie_in_the_queue() -> None:
    """Yet they are counted there as put and taken, in the reports too."""
    node = SmallNode(line(), chaining=False)
    node.feed(keyed(0, 1, 2), stamps=(Stamp(7, 3),))
    reports = all_in_one(node)
    record = node.queue("count")
    assert (record.next_sequence, record.put_rows, record.taken_rows, record.turns) == (0, 3, 3, 1)
    first, second = reports[node.instance("pass").number], reports[node.instance("count").number]
    assert (first.filled[0].put_rows, second.taken_rows, second.rows) == (3, 3, 3)
    assert node.stamps("out") == (Stamp(7, 3),)
    assert node.ledger().balanced
    assert [(row["id"], row["nth"]) for row in node.write_out("out")] == [(0, 1), (1, 1), (2, 2)]


def test_what_lies_in_the_queue_goes_before() -> None:
    """Rows of a channel stay in order, so nothing is handed past rows that wait."""
    node = SmallNode(line(), chaining=False)
    node.feed(keyed(0, 2))
    node.turn("pass")
    node.feed(keyed(4))
    all_in_one(node)
    assert [(row["id"], row["nth"]) for row in node.write_out("out")] == [(0, 1), (2, 2), (4, 3)]
    assert node.ledger().balanced


def test_more_rows_than_a_part_may_take_wait_in_the_queue() -> None:
    """And the first of them are taken from there by the same turn."""
    node = SmallNode(line(), chaining=False)
    node.feed(keyed(0, 2, 4))
    node.pack(("pass", ALL), ("count", 2))
    assert ids(node.waiting("count")) == [4]
    assert ids(node.write_out("out")) == [0, 2]
    assert node.ledger().balanced


def test_rows_that_stop_the_flow_stay_in_the_queue() -> None:
    """What made them is committed; they wait for somebody to mend the function."""
    passed = rows_of_any_kind().map(lambda rows: rows, name="pass")
    node = SmallNode(flow("stops", passed.map(stumble, name="stumble").sink(Wall(), name="out")), chaining=False)
    node.feed([{"id": 1, "bad": True}])
    reports = node.pack(("pass", ALL), ("stumble", ALL))
    assert reports[node.instance("stumble").number].trouble is not None
    assert (node.queue("pass").taken_rows, ids(node.waiting("stumble"))) == (1, [1])
    assert node.ledger().balanced


class Intruder:
    """Numbers rows, and lets another worker run the same instance in the middle of the first turn."""

    def __init__(self) -> None:
        """Do nothing yet."""
        self.act: Callable[[], None] | None = None

    def __call__(self, rows: pa.RecordBatch, state: KeyedState) -> Any:
        """Count, and then let the other be faster."""
        made = count_visits(rows, state)
        act, self.act = self.act, None
        if act is not None:
            act()
        return made


def test_a_turn_whose_follower_was_outrun_changes_nothing_at_all() -> None:
    """It read state that another worker has changed since; what it made of its first rows must not stay either."""
    intruder = Intruder()
    node = SmallNode(line(intruder), chaining=False)
    node.feed(keyed(0))
    other = SmallNode(line(), store=node.store, chaining=False)

    def outrun() -> None:
        other.runner.term = node.term
        passing, counting = node.instance("pass"), node.instance("count")
        other.runner.run([Assignment(passing, ALL), Assignment(counting, ALL)])
        intruder.before = node.contents()  # type: ignore[attr-defined]

    intruder.act = outrun
    reports = all_in_one(node)
    assert {report.note for report in reports.values()} == {"superseded"}
    assert node.contents() == intruder.before  # type: ignore[attr-defined]
    assert [(row["id"], row["nth"]) for row in node.write_out("out")] == [(0, 1)]
    assert node.ledger().balanced


def test_a_turn_that_took_nothing_from_the_queue_supersedes_one_that_did() -> None:
    """The head has not moved, but the state has changed: the number of turns tells."""
    node = SmallNode(line(), chaining=False)
    node.feed(keyed(0))
    slow = node.prepared("pass")
    all_in_one(node)
    assert node.commit(slow).note == "superseded"
    late = node.prepared("count")
    node.feed(keyed(2))
    all_in_one(node)
    assert node.commit(late).note == "superseded"
    assert [row["nth"] for row in node.write_out("out")] == [1, 2]


def test_a_worker_of_an_earlier_term_hands_on_nothing() -> None:
    """Its node is dead."""
    node = SmallNode(line(), chaining=False)
    node.feed(keyed(0))
    zombie = node.runner
    node.begin_term()
    before = node.contents()
    zombie.run([Assignment(node.instance("pass"), ALL), Assignment(node.instance("count"), ALL)])
    assert node.contents() == before


steps = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["pack", "few", "turns"])), min_size=1, max_size=6)


@given(steps)
def test_whatever_is_handed_on_the_results_are_the_same(taken: list[tuple[int, str]]) -> None:
    """Several readers, dead letters, keys over instances, a split: turns that follow and turns that do not, mixed."""
    node, plain = SmallNode(branching()), SmallNode(branching())
    first = 0
    for count, how in taken:
        rows = keyed(*range(first, first + count)) if count else numbered()
        first += count
        if count:
            node.feed(rows)
            plain.feed(rows)
        if how == "turns":
            node.settle()
        else:
            all_in_one(node, ALL if how == "pack" else 2)
        assert node.ledger().balanced
    node.settle()
    plain.settle()
    for sink in ("even", "odd", "copies", "dead"):
        told, expected = node.write_out(sink), plain.write_out(sink)
        assert sorted(map(repr, told)) == sorted(map(repr, expected))


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=6))
def test_marks_are_handed_on_with_the_rows(fed: list[list[int]]) -> None:
    """How far event time has come, and what is late, does not depend on whether rows lay in queues."""
    node, plain = held_back(chaining=False), held_back(chaining=False)
    for times in fed:
        node.feed(batch(*times))
        all_in_one(node)
        plain.feed(batch(*times))
        plain.settle()
    assert seconds(node.write_out("out")) == seconds(plain.write_out("out"))
    assert seconds(node.write_out("late")) == seconds(plain.write_out("late"))
    assert node.queue(node.instance("hold")).put_marks == plain.queue(plain.instance("hold")).put_marks
