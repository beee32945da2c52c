"""Finding the node that answers for an app, by the app's name: without asking everybody.

A name has a place on the ring, and whoever owns that place keeps where the app is. An app's owner says so again and
again, along the ring; what is not said any more is forgotten. So nothing has to be moved when the ring changes, and who
finds nobody who knows asks all nodes instead.

A name belongs to the app that had it first, for as long as its owner says so: of two that are submitted at once, one
hears that it came too late.
"""

import time
from typing import Final

import msgspec

from headwater.client.questions import HOPS_MAX, AppFound, Find, Publish, Whereabouts
from headwater.model.errors import HeadwaterError
from headwater.model.peers import NodeId, Peer, key_of
from headwater.overlay.ring import Ring
from headwater.runtime.service.questioner import LOOK_S, Asking

KEPT_S: Final = 35.0  # three words of an owner, and a bit
APPS_MAX: Final = 10_000  # that are kept; beyond it the one that was told longest ago is forgotten


class Directory:
    """The names that this node keeps, and its way to those that others keep."""

    def __init__(self, ring: Ring, asking: Asking) -> None:
        """Keep none."""
        self._ring, self._asking = ring, asking
        self._kept: dict[str, tuple[float, Whereabouts]] = {}  # the latest last

    async def publish(self, app: Whereabouts, instead_of: str = "") -> Whereabouts | None:
        """Have it kept where an app is, and return which one has its name; None: nobody is there to keep it now."""
        try:
            return (await self.published(Publish(app, instead_of))).app
        except HeadwaterError:
            return None

    async def find(self, name: str) -> Whereabouts | None:
        """Return where an app is, if whoever keeps its name says so."""
        try:
            return (await self.sought(Find(name))).app
        except HeadwaterError:
            return None

    async def published(self, message: Publish) -> AppFound:
        """Keep where an app is unless another has its name, or pass it on towards its name's place."""
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
        """Say where an app is, or ask on towards its name's place."""
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
