"""The same nodes under one central master, which serves whoever came first: the baseline of AgileDART's Figure 8.

The paper, of Nimbus: it deploys the graphs and processes them "one by one on a first-come, first-served basis". So an
app that is submitted at a node goes to the master, waits there until the one before it runs, is placed, and every host
is told what to start, all at once; with the last answer it runs, and the next one is taken up. Wire, links and messages
are ours, and so is what a host does that is told to start something: `StartAsked` makes it build the flow and open its
instances, `StartTold` is its answer.

It is spared what our stewards pay, as the master of the overlay benchmark is: it stands at the peer that is nearest to
all others, knows the load of every node and the length of every link without asking, builds no tree, and asks no owner
to agree. Sources are read at once, not when all instances run.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from bench.edge.links import round_trip_ms
from bench.edge.watched import WatchedNode
from headwater.control.messages.app_messages import AppSpec, ChainSpec, RegisterAsked, StartAsked, StartTold
from headwater.control.messages.events import AppSubmitted, MessageReceived, NodeEvent
from headwater.model.peers import NodeId, Peer
from headwater.planner.placement import AlongTheWay, PathStep, Room, Spot, Wish

TERM: Final = 1
SOURCE: Final = ChainSpec("source", 0, 0, ())


@dataclass(slots=True)
class Mastery:
    """What the master knows: every node, what runs there, and who waits."""

    place: Peer
    peers: tuple[Peer, ...]
    capacity: int
    loads: dict[NodeId, int] = field(default_factory=dict)
    waiting: deque[AppSpec] = field(default_factory=deque)
    unanswered: set[int] = field(
        default_factory=set
    )  # instances and, negative, sources of the app that is being started
    app: str | None = None  # that is being started

    def placed(self, spec: AppSpec) -> dict[int, Spot]:
        """Place an app as our stewards do, by what is really so."""
        root = next(peer for peer in self.peers if peer.id == spec.key)
        ways = [
            [self._step(source)] if source.id == root.id else [self._step(source), self._step(root)]
            for source in spec.sources
        ]
        wishes = [Wish(number, one.operators, one.stage, one.sources) for number, one in enumerate(spec.chains)]
        spots = AlongTheWay().place(wishes, ways)
        for wish in wishes:
            host = spots[wish.instance].peer.id
            self.loads[host] = self.loads.get(host, 0) + wish.operators
        return spots

    def _step(self, peer: Peer) -> PathStep:
        around = tuple(self._room(other, peer) for other in self.peers if other.id != peer.id)
        return PathStep(self._room(peer, peer), around)

    def _room(self, peer: Peer, near: Peer) -> Room:
        way_us = 0 if peer.id == near.id else int(1_000 * round_trip_ms(peer.zone, near.zone))
        return Room(peer, self.loads.get(peer.id, 0), self.capacity, way_us)


class MasteredNode(WatchedNode):
    """A node that leaves all apps to the master, and may be it."""

    mastery: Mastery

    def handle(self, event: NodeEvent) -> None:
        """Bring an app to the master; as the master, serve one after the other."""
        match event:
            case AppSubmitted(spec):
                self.note(spec.name, "submitted")
                self._bring(spec)
            case MessageReceived(RegisterAsked(spec=spec)):
                self.mastery.waiting.append(spec)
                self._serve()
            case MessageReceived(StartTold(app=app, instance=number)) if app == self.mastery.app:
                self.mastery.unanswered.discard(number)
                self._serve()
            case _:
                super().handle(event)

    def _bring(self, spec: AppSpec) -> None:
        asked = RegisterAsked(self.own, 0, spec)
        if self.own.id == self.mastery.place.id:
            self._loop.call_soon(self.handle, MessageReceived(asked))
        else:
            self.wire.send(self.mastery.place.address, asked)

    def _serve(self) -> None:
        """Take up the next app, if the one before it runs."""
        known = self.mastery
        if known.unanswered or not known.waiting:
            return
        spec = known.waiting.popleft()
        known.app = spec.name
        self.note(spec.name, "taken up")
        asked = [
            (
                spot.peer,
                StartAsked(self.own, spec.name, TERM, number, spec.chains[number], spot.anchor, spec.flow, spec.key),
            )
            for number, spot in known.placed(spec).items()
        ]
        asked += [
            (peer, StartAsked(self.own, spec.name, TERM, -1 - number, SOURCE, peer, spec.flow, spec.key))
            for number, peer in enumerate(spec.sources)
        ]
        known.unanswered = {one.instance for _, one in asked}
        for peer, one in asked:
            if peer.id == self.own.id:
                self._loop.call_soon(self.handle, MessageReceived(one))
            else:
                self.wire.send(peer.address, one)
