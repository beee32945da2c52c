"""A distributed hash table from an app's name to its owner, so that a lookup takes a few hops, not a broadcast.

A name hashes to a key on the ring, and the node responsible for that key keeps the entry. Entries are soft state: the
owner publishes again every few seconds, and an entry that is not renewed expires. So nothing has to be moved when the
ring changes; a lookup that finds no entry falls back to asking all nodes.

The first app to publish a name has it for as long as its owner renews it: of two submitted at once, one is refused.
"""

import time
from typing import Final

import msgspec

from headwater.client.questions import HOPS_MAX, AppFound, Find, Publish, Whereabouts
from headwater.model.errors import HeadwaterError
from headwater.model.peers import NodeId, Peer, key_of
from headwater.overlay.ring import Ring
from headwater.runtime.service.questioner import LOOK_S, Asking

KEPT_S: Final = 35.0  # three publications of an owner, and a margin
APPS_MAX: Final = 10_000  # entries; beyond it the one renewed longest ago is dropped


class Directory:
    """The entries that this node keeps, and how it reaches those of others."""

    def __init__(self, ring: Ring, asking: Asking) -> None:
        self._ring, self._asking = ring, asking
        self._kept: dict[str, tuple[float, Whereabouts]] = {}  # the last renewed comes last

    async def publish(self, app: Whereabouts, instead_of: str = "") -> Whereabouts | None:
        """Publish an app's whereabouts and return which app has the name; None if the responsible node is away."""
        try:
            return (await self.published(Publish(app, instead_of))).app
        except HeadwaterError:
            return None

    async def find(self, name: str) -> Whereabouts | None:
        """Return where an app is, or None if there is no entry or the responsible node is unreachable."""
        try:
            return (await self.sought(Find(name))).app
        except HeadwaterError:
            return None

    async def published(self, message: Publish) -> AppFound:
        """Store the entry unless another app has the name, or forward it towards the name's key."""
        app = message.app
        hop = self._next(app.name, message.hops)
        if hop is not None:
            further = msgspec.structs.replace(message, hops=message.hops + 1)
            found: AppFound = await self._asking.ask(hop, further, LOOK_S)
            return found
        holder = self._fresh(app.name)
        if holder is not None and holder.id not in (app.id, message.instead_of):
            return AppFound(holder)
        self._keep(app)
        return AppFound(app)

    def _keep(self, app: Whereabouts) -> None:
        self._kept.pop(app.name, None)
        self._kept[app.name] = (time.monotonic(), app)
        if len(self._kept) > APPS_MAX:
            del self._kept[next(iter(self._kept))]

    def _fresh(self, name: str) -> Whereabouts | None:
        told_at, app = self._kept.get(name, (0.0, None))
        return app if time.monotonic() - told_at <= KEPT_S else None

    async def sought(self, message: Find) -> AppFound:
        """Answer with the entry, or forward the question towards the name's key."""
        hop = self._next(message.name, message.hops)
        if hop is not None:
            found: AppFound = await self._asking.ask(hop, Find(message.name, message.hops + 1), LOOK_S)
            return found
        return AppFound(self._fresh(message.name))

    def _next(self, name: str, hops: int) -> Peer | None:
        return None if hops >= HOPS_MAX else self._ring.next_hop(place_of(name))


def place_of(name: str) -> NodeId:
    """Return the place of a name on the ring."""
    return key_of(f"app/{name}")
