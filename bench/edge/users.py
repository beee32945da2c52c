"""Users of the cluster: they submit apps, at a rate if need be, and stop them, through the peers themselves."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.edge.watched import Note, clock_us
from headwater.client.cluster import user_credentials
from headwater.client.connection import AsyncNodeClient, connect_async
from headwater.client.flow_text import EndsText, FlowText, flow_texts
from headwater.client.requests import REQUESTS, StopApp, Submit, Submitted
from headwater.client.signing import signed
from headwater.dataflow.compile import compile_flow
from headwater.loading.flow_file import load_flows
from headwater.model.errors import EngineError, HeadwaterError
from headwater.model.peers import Peer


@dataclass(frozen=True, slots=True)
class Wanted:
    """An app that a user wants: what it is, at which peers it is submitted and read, and how much of it has to open."""

    text: FlowText
    owner: Peer
    at: dict[str, str]  # addresses, by source
    opens: int  # instances, sinks and sources


@dataclass(frozen=True, slots=True)
class Arrival:
    """An app that was submitted."""

    wanted: Wanted
    id: str
    due_us: int  # when the user wanted it


def wanted_app(
    app: str,
    name: str,
    owner: Peer,
    reads: Peer,
    ends: EndsText,
    settings: Sequence[str] = (),
    *,
    chaining: bool = True,
) -> Wanted:
    """Return an application as a user wants it, its sources all at one peer."""
    [text] = flow_texts(app, ends, settings, name, chaining=chaining)
    graph = compile_flow(load_flows(app, ends.ends(), settings)[0], chaining=chaining)
    at = dict.fromkeys(graph.sources, reads.address)
    return Wanted(text, owner, at, graph.instance_count + len(graph.sources))


class Users:
    """Connections to all peers; `async with`."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        """Reach nobody yet."""
        self._peers, self._credentials = peers, user_credentials(None, insecure=True)
        self._clients: dict[str, AsyncNodeClient] = {}

    async def __aenter__(self) -> "Users":
        """Reach all."""
        for peer in self._peers:
            self._clients[peer.address] = await connect_async(peer.address, self._credentials, REQUESTS)
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Hang up."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    async def submit(self, apps: Sequence[Wanted], rate: float | None = None) -> list[Arrival]:
        """Submit apps, so many a second or all at once; whoever is late is charged for it."""
        began, began_us = time.monotonic(), clock_us()
        tasks = []
        for number, wanted in enumerate(apps):
            due_s = number / rate if rate else 0.0
            await asyncio.sleep(max(0.0, began + due_s - time.monotonic()))
            tasks.append(asyncio.create_task(self._submit(wanted, began_us + int(due_s * 1e6))))
        return list(await asyncio.gather(*tasks))

    async def _submit(self, wanted: Wanted, due_us: int) -> Arrival:
        asked = Submit(signed(wanted.text.encode(), self._credentials, clock_us()), "", wanted.at)
        answer: Submitted = await self._clients[wanted.owner.address].ask(asked)
        return Arrival(wanted, answer.id, due_us)

    async def stop(self, arrivals: Sequence[Arrival], at_once: int = 8) -> None:
        """Stop apps, a few at a time."""
        gate = asyncio.Semaphore(at_once)

        async def stop(arrival: Arrival) -> None:
            async with gate:
                await self._clients[arrival.wanted.owner.address].ask(StopApp(arrival.id))

        try:
            await asyncio.gather(*(stop(one) for one in arrivals))
        except HeadwaterError as failure:
            raise EngineError(f"an app was not stopped: {failure}") from failure


@dataclass(frozen=True, slots=True)
class Deployed:
    """How an app came to run, from the instant that its user wanted it."""

    app: str
    queue_ms: float  # until a steward, or the master, took it up
    deploy_ms: float  # until all its instances were open, and its sources read


def deployed(arrivals: Sequence[Arrival], notes: Sequence[Note]) -> list[Deployed | None]:
    """Return how each app came to run; None for one that does not run yet."""
    by_app: dict[str, list[Note]] = {}
    for note in notes:
        by_app.setdefault(note.app, []).append(note)
    return [_deployed(arrival, by_app.get(arrival.id, [])) for arrival in arrivals]


def _deployed(arrival: Arrival, notes: Sequence[Note]) -> Deployed | None:
    opened: dict[int, int] = {}
    for note in notes:
        if note.what == "open":
            opened.setdefault(note.number, note.at_us)
    taken = [note.at_us for note in notes if note.what == "taken up"]
    if len(opened) < arrival.wanted.opens or not taken:
        return None
    queue_ms, deploy_ms = ((at_us - arrival.due_us) / 1_000 for at_us in (min(taken), max(opened.values())))
    return Deployed(arrival.wanted.text.app, round(queue_ms, 1), round(deploy_ms, 1))
