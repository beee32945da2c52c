"""What a worker remembers of an instance's state: only what still holds."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dataflow.stream import flow
from headwater.engine.keyed_state import REMEMBERED_MAX, StateMemory, StoredState
from headwater.engine.turn import Assignment, TurnRunner
from headwater.model.entries import entry_of, shared_entry
from headwater.model.ids import AppId, InstanceId
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.memory_store import MemoryStore
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
