"""The peer that owns an app's key arbitrates between stewards that both have the app.

During a partition each side finds a steward of its own for an app, and one side may end the app while it runs on in the
other. Such stewards need not be neighbours, nor share a host. So every steward routes a claim towards the key of each
of its apps with every announcement. The owner of the key tells the steward that loses: the one with the lower term, or
the one that does not know that the app was ended. Claims are soft state: if the owner is lost, the next one hears them
again within seconds.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.model.peers import Peer
from headwater.model.time import Instant
from headwater.overlay.messages import HOPS_MAX

CLAIMS_MAX: Final = 4_096  # apps that are remembered; beyond it the one that was claimed longest ago is forgotten
ANNOUNCES_KEPT: Final = 3  # announcements after which a claim that was not repeated is stale


@dataclass(frozen=True, slots=True)
class _Claim:
    """A steward's claim to an app."""

    steward: Peer
    term: int
    has_ended: bool
    heard: Instant

    @property
    def rank(self) -> tuple[bool, int]:
        """The higher rank wins: an end is never revoked, else the higher term counts."""
        return self.has_ended, self.term


class Claims:
    """The part of a node that keeps the claims to apps whose keys it owns."""

    def __init__(self, ground: NodeContext) -> None:
        self._ground = ground
        self._claims: dict[str, _Claim] = {}  # the latest last

    def claimed(self, message: m.AppClaimed) -> None:
        """Forward a claim towards the app's key; as the key's owner, compare it with the known claim."""
        ground = self._ground
        hop = ground.ring.next_hop(message.key)
        if hop is not None:
            if message.hops < HOPS_MAX:  # else it is in a loop, while the ring is changing: it is repeated later
                ground.send(hop, msgspec.structs.replace(message, sender=ground.own, hops=message.hops + 1))
            return
        claim = _Claim(message.steward, message.term, message.has_ended, ground.now)
        known = self._claims.pop(message.app, None)
        if known is None or known.steward.id == claim.steward.id or self._is_stale(known):
            self._remember(message.app, claim)
            return
        stands, yields = (claim, known) if claim.rank > known.rank else (known, claim)
        self._remember(message.app, stands)
        if stands.has_ended and not yields.has_ended:
            ground.send(yields.steward, m.EndKnown(ground.own, message.app))
        elif not stands.has_ended:
            ground.send(yields.steward, m.StewardMoved(ground.own, message.app, stands.term, stands.steward))

    def _is_stale(self, claim: _Claim) -> bool:
        return self._ground.now - claim.heard > ANNOUNCES_KEPT * self._ground.config.announce

    def _remember(self, app: str, claim: _Claim) -> None:
        self._claims[app] = claim
        if len(self._claims) > CLAIMS_MAX:
            del self._claims[next(iter(self._claims))]
