"""What is interrupted while it starts leaves nothing behind: a thread goes on whoever has given up waiting for it."""

import asyncio
import tempfile
import threading

import pytest

from headwater.runtime.service.local_cluster import LocalNodes
from headwater.runtime.service.service import NodeService
from headwater.runtime.service.shielded import uncut

_begun, _may_go_on = threading.Event(), threading.Event()


class _SlowToStart(NodeService):
    """A node whose engine starts when it is let, as one does that starts Spark."""

    def _start_engine(self) -> None:
        _begun.set()
        assert _may_go_on.wait(60)
        super()._start_engine()


def test_nodes_that_are_interrupted_while_an_engine_starts_stop_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: else it waits for ever for workers of a store that is deleted, and the process never ends."""
    place, data = tmp_path_factory.mktemp("t"), tmp_path_factory.mktemp("data")
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    async def story() -> None:
        nodes = LocalNodes(data, spark=False, kind=_SlowToStart)
        starting = asyncio.create_task(nodes.start(["here"]))
        await asyncio.to_thread(_begun.wait, 60)
        for _ in range(2):
            starting.cancel()
            await asyncio.sleep(0)
        _may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await nodes.stop()  # as everybody does who starts some

    asyncio.run(story())
    assert list(place.iterdir()) == []


def test_whoever_is_cancelled_hears_the_end_first() -> None:
    told: list[str] = []

    async def story() -> None:
        gate = asyncio.Event()

        async def slow() -> str:
            await gate.wait()
            return "done"

        async def waiting() -> None:
            told.append(await uncut(slow()))
            await asyncio.sleep(0)
            told.append("went on")

        task = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert told == ["done"]
