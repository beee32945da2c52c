"""What a worker remembers of an instance's state: only what still holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dataflow.stream import flow
from headwater.engine.keyed_state import REMEMBERED_MAX, StateMemory, StoredState
from headwater.engine.turn import Assignment, TurnRunner
from headwater.model.entries import entry_of, shared_entry
from headwater.model.ids import AppId, InstanceId
from headwater.storage.memory_store import MemoryStore
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.small_node import SmallNode

HERE = InstanceId(AppId(1), 0)
A, B = entry_of(1, 0, b"a"), entry_of(1, 0, b"b")


def counting(row: dict[str, Any], value: int | None) -> tuple[dict[str, Any], int]:
    """Count the rows of a key."""
    return {"k": row["k"], "n": (value or 0) + 1}, (value or 0) + 1


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.sampled_from("abc"), min_size=1, max_size=4)), max_size=12))
def test_workers_that_take_turns_see_what_the_others_wrote(turns: Sequence[tuple[int, list[str]]]) -> None:
    """Three workers, each with a memory of its own, in any order: every count is right."""
    node = SmallNode(flow("counts", rows_of_any_kind().key_by("k").stateful(counting, name="count").sink(Wall())))
    workers = [TurnRunner(node.store, node.term, node.runner.chains, lambda: 0) for _ in range(3)]
    seen: dict[str, int] = {}
    expected = []
    for worker, keys in turns:
        node.feed([{"k": key} for key in keys])
        (report,) = workers[worker].run([Assignment(node.instance("count"), 100)])
        assert report.trouble is None
        for key in keys:
            seen[key] = seen.get(key, 0) + 1
            expected.append({"k": key, "n": seen[key]})
    assert node.write_out("wall") == expected


def test_what_was_read_or_written_is_not_read_again() -> None:
    """The store is asked once; what the turn wrote is known afterwards."""
    store = MemoryStore()
    with store.write() as txn:
        txn.put(b"p" + A, b"1")
    memory = StateMemory()
    known = memory.recall(HERE, 0)
    assert StoredState(store, b"p", known.setdefault(0, {})).read_many([A, B]) == [b"1", None]
    memory.keep(HERE, 1, known, {0: {B: b"2"}})
    again = memory.recall(HERE, 1)
    assert StoredState(MemoryStore(), b"p", again[0]).read_many([B, A]) == [b"2", b"1"]


@dataclass
class Learned:
    """What an operator worked out from so many entries."""

    entries: int = 1


def test_what_an_operator_knows_by_heart_is_not_remembered_besides() -> None:
    """Once the operator does not leave it any more, entries are remembered again."""
    memory = StateMemory()
    memory.keep(HERE, 1, {}, {0: {A: b"1"}})
    for turns in (1, 2):
        known = memory.recall(HERE, turns)
        state = StoredState(MemoryStore(), b"p", known[0])
        assert state.keepsake is not None
        assert (state.keepsake.take() is None) == (turns == 1)
        state.keepsake.leave(Learned())
        memory.keep(HERE, turns + 1, known, {0: {B: b"2"}})
        assert memory.recall(HERE, turns + 1) == {0: {}}
    known = memory.recall(HERE, 3)
    memory.keep(HERE, 4, known, {0: {A: b"3"}})
    assert memory.recall(HERE, 4) == {0: {A: b"3"}}


@pytest.mark.parametrize("turns", [0, 2, 7])
def test_another_turn_in_between_makes_it_worthless(turns: int) -> None:
    """The queue's own count of turns tells."""
    memory = StateMemory()
    memory.keep(HERE, 1, {}, {0: {A: b"1"}})
    assert memory.recall(HERE, turns) == {}


def test_what_belongs_to_all_keys_is_always_read() -> None:
    """Another instance of the operator may have changed it."""
    memory = StateMemory()
    memory.keep(HERE, 1, {}, {0: {shared_entry("schema"): b"1", A: b"2"}})
    assert memory.recall(HERE, 1) == {0: {A: b"2"}}


def test_it_remembers_no_more_than_it_may() -> None:
    """Beyond the limit it forgets all, and a turn that is larger by itself is not remembered."""
    memory = StateMemory()
    many = {entry_of(1, number, b"k"): b"" for number in range(REMEMBERED_MAX)}
    memory.keep(HERE, 1, {}, {0: dict(many)})
    memory.keep(InstanceId(AppId(1), 1), 1, {}, {0: {A: b"1"}})
    assert memory.recall(HERE, 1) == {}
    memory.keep(HERE, 2, {}, {0: many | {B: b""}})
    assert memory.recall(HERE, 2) == {}


def test_what_an_operator_knows_by_heart_counts_as_remembered() -> None:
    """Also where it has grown since the turn before."""
    memory = StateMemory()
    memory.keep(HERE, 1, {}, {0: {A: b"1"}})
    learned = Learned()
    for turns in (1, 2):
        known = memory.recall(HERE, turns)
        keepsake = StoredState(MemoryStore(), b"p", known[0]).keepsake
        assert keepsake is not None
        keepsake.leave(learned)
        memory.keep(HERE, turns + 1, known, {0: {A: b"2"}})
        learned.entries = REMEMBERED_MAX
    assert memory.recall(HERE, 3) == {0: {}}
    memory.keep(InstanceId(AppId(1), 1), 1, {}, {0: {A: b"1"}})
    assert memory.recall(HERE, 3) == {}
