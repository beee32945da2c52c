"""What is wanted of an engine is done in its order, and does not wait without bound."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.model.peers import Peer, key_of
from headwater.node import messages as m
from headwater.node.events import AwaitInstance, MessageReceived, StopInstance
from headwater.runtime.service.service import NodeService
from headwater.runtime.service.wishes import FLOWS_BYTES_MAX, Wishes
from tests.runtime.service.few_nodes import FewNodes

EVIL = Peer(key_of("evil"), "127.0.0.1:9", "here")


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """A node without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        yield few


def test_what_is_to_be_started_has_an_end_and_what_ends_something_has_none() -> None:
    async def all_of_it() -> None:
        wishes, large = Wishes(), bytes(FLOWS_BYTES_MAX // 2)
        first, second = AwaitInstance("one", 0, large, key_of("one")), AwaitInstance("two", 0, b"", key_of("two"))
        assert wishes.put(first)
        assert not wishes.put(AwaitInstance("too much", 0, large, key_of("too much")))
        assert wishes.put(StopInstance("one", 0))
        assert wishes.put(second)
        assert [await wishes.next() for _ in range(3)] == [first, StopInstance("one", 0), second]
        assert wishes.put(first), "there is room again"

    asyncio.run(all_of_it())


def test_a_node_that_is_to_start_too_much_tries_it_again_later(few: FewNodes) -> None:
    """While it is busy, somebody may ask it again and again for ever other apps, each with a megabyte."""
    node = few.nodes[0]
    count = FLOWS_BYTES_MAX // m.FLOW_BYTES_MAX + 5

    async def ask_while_busy() -> int:
        begun, done = asyncio.Event(), asyncio.Event()

        async def busy() -> None:
            begun.set()
            await done.wait()

        doing = asyncio.create_task(node.in_turn(busy))
        await begun.wait()
        _ask_for(node, count)
        postponed = len(node.plant.troubles.apps())
        done.set()
        await doing
        return postponed

    assert few.do(ask_while_busy()) >= 5
    few.wait_until(lambda: len(node.plant.troubles.apps()) == count)  # none can be run, and all are tried
    assert all("the flow cannot run here" in node.plant.troubles.of(f"app-{number}", 0)[0] for number in range(5))


def _ask_for(node: NodeService, count: int) -> None:
    sink = m.ChainSpec("out", 0, 0, (0,), keeps=True)
    for number in range(count):
        asked = m.StartAsked(
            EVIL, f"app-{number}", 1, 0, sink, EVIL, flow=bytes(m.FLOW_BYTES_MAX), key=key_of(f"app-{number}")
        )
        node.handle(MessageReceived(asked))
