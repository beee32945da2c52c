"""Finding the node that answers for an app, by the app's name: without asking everybody.

A name has a place on the ring, and whoever owns that place keeps where the app is. An app's owner says so again and
again, along the ring; what is not said any more is forgotten. So nothing has to be moved when the ring changes, and who
finds nobody who knows asks all nodes instead.
"""

import time
from typing import Final

from headwater.model.errors import HeadwaterError
from headwater.model.peers import NodeId, Peer, key_of
from headwater.overlay.ring import Ring
from headwater.runtime.service.asking import LOOK_S, Asking
from headwater.runtime.service.questions import HOPS_MAX, Done, Find, Found, Publish, Whereabouts

KEPT_S: Final = 35.0  # three words of an owner, and a bit
APPS_MAX: Final = 10_000  # that are kept; beyond it the one that was told longest ago is forgotten


class Directory:
    """The names that this node keeps, and its way to those that others keep."""

    def __init__(self, ring: Ring, asking: Asking) -> None:
        """Keep none."""
        self._ring, self._asking = ring, asking
        self._kept: dict[str, tuple[float, Whereabouts]] = {}  # the latest last

    async def publish(self, app: Whereabouts) -> None:
        """Have it kept where an app is; nobody is there to keep it, and it is said again later."""
        try:
            await self.published(Publish(app))
        except HeadwaterError:
            return

    async def find(self, name: str) -> Whereabouts | None:
        """Return where an app is, if whoever keeps its name says so."""
        try:
            return (await self.sought(Find(name))).app
        except HeadwaterError:
            return None

    async def published(self, message: Publish) -> Done:
        """Keep where an app is, or pass it on towards its name's place."""
        hop = self._next(message.app.name, message.hops)
        if hop is not None:
            await self._asking.ask(hop, Publish(message.app, message.hops + 1), LOOK_S)
            return Done()
        self._kept.pop(message.app.name, None)
        self._kept[message.app.name] = (time.monotonic(), message.app)
        if len(self._kept) > APPS_MAX:
            del self._kept[next(iter(self._kept))]
        return Done()

    async def sought(self, message: Find) -> Found:
        """Say where an app is, or ask on towards its name's place."""
        hop = self._next(message.name, message.hops)
        if hop is not None:
            found: Found = await self._asking.ask(hop, Find(message.name, message.hops + 1), LOOK_S)
            return found
        told_at, app = self._kept.get(message.name, (0.0, None))
        return Found(app if time.monotonic() - told_at <= KEPT_S else None)

    def _next(self, name: str, hops: int) -> Peer | None:
        return None if hops >= HOPS_MAX else self._ring.next_hop(place_of(name))


def place_of(name: str) -> NodeId:
    """Return the place of a name on the ring."""
    return key_of(f"app/{name}")
