"""What is wanted of an engine is done in its order, and does not wait without bound."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.control.messages import app_messages as m
from headwater.control.messages.events import AwaitInstance, StopInstance
from headwater.links.refusals import Reason
from headwater.model.peers import Peer, key_of
from headwater.runtime.service.effect_queue import FLOWS_BYTES_MAX, Wishes
from headwater.runtime.service.service import NodeService
from tests.runtime.service.few_nodes import FewNodes

EVIL = Peer(key_of("evil"), "127.0.0.1:9", "here")


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """A node without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        yield few


def test_wishes_are_done_in_their_order_and_too_many_only_while_they_wait() -> None:
    async def all_of_it() -> None:
        wishes, large = Wishes(), bytes(FLOWS_BYTES_MAX // 2)
        first, second = (AwaitInstance(name, 0, large, key_of(name)) for name in ("one", "two"))
        wishes.put(first)
        assert not wishes.are_too_many()
        wishes.put(StopInstance("one", 0))
        wishes.put(second)
        assert wishes.are_too_many()
        assert await wishes.next() == first
        assert not wishes.are_too_many()
        assert [await wishes.next() for _ in range(2)] == [StopInstance("one", 0), second]

    asyncio.run(all_of_it())


def test_a_node_that_has_too_much_to_start_hears_of_no_more_until_there_is_room(few: FewNodes) -> None:
    """While it is busy, somebody may ask it again and again for ever other apps, each with a megabyte."""
    node = few.nodes[0]
    count = FLOWS_BYTES_MAX // m.FLOW_BYTES_MAX + 5

    async def ask_while_busy() -> tuple[int, dict[str, int]]:
        begun, done = asyncio.Event(), asyncio.Event()

        async def busy() -> None:
            begun.set()
            await done.wait()

        doing = asyncio.create_task(node.in_turn(busy))
        await begun.wait()
        _ask_for(node, range(count))
        heard, refused = len(node.machine.hosting.hosted), node.wire.status().refused
        done.set()
        await doing
        return heard, refused

    async def ask_again_for(numbers: range) -> None:
        _ask_for(node, numbers)

    heard, refused = few.do(ask_while_busy())
    assert (heard, refused) == (count - 5, {Reason.UNUSABLE: 5})
    few.wait_until(lambda: len(node.plant.troubles.apps()) == heard)  # none can be run, and all are tried
    few.do(ask_again_for(range(heard, count)))
    few.wait_until(lambda: len(node.plant.troubles.apps()) == count)


def _ask_for(node: NodeService, numbers: range) -> None:
    sink = m.ChainSpec("out", 0, 0, (0,), keeps=True)
    for number in numbers:
        asked = m.StartAsked(
            EVIL, f"app-{number}", 1, 0, sink, EVIL, flow=bytes(m.FLOW_BYTES_MAX), key=key_of(f"app-{number}")
        )
        node._hear(EVIL.id, asked)
