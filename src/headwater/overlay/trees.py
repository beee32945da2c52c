"""Trees over the ring (Scribe): the union of the routes from all members to a key, for multicast and aggregation.

A node that wants to be in a tree asks the next hop towards the tree's key to be its parent. The parent then joins the
tree in the same way, and so on up to the owner of the key: the root. So no node knows all of a tree, and a tree is as
deep as a route is long. A multicast goes up to the root and down to every member. Aggregates climb one node with every
beat; a node that contributes a number stays in the tree until it withdraws it, member or not.

Membership is soft state: a child repeats its TreeJoin with every beat, and the parent answers with the path to the
root. A child that gets no answer looks for another parent. A root that stops owning the key joins the new owner. A node
that finds itself on its parent's path to the root is in a loop, and looks for another parent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from headwater.model.peers import NodeId, Peer
from headwater.model.time import SECOND, Duration, Instant
from headwater.model.timers import Timers
from headwater.overlay import tree_messages as m
from headwater.overlay.events import PeerPhase
from headwater.overlay.messages import HOPS_MAX
from headwater.overlay.mistakes import Apart, NoteMistake
from headwater.overlay.ring import Ring

SEEN_MAX: Final = 1_024  # numbers of multicasts that are remembered, to drop duplicates
TREES_MAX: Final = 10_000  # trees above which we refuse children in new ones; our own memberships have no bound


@dataclass(frozen=True, slots=True)
class MembershipWanted:
    """This node is to be in a tree."""

    key: NodeId


@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """This node wants no more multicasts of a tree; it stays in the tree while it has children or numbers."""

    key: NodeId


@dataclass(frozen=True, slots=True)
class MulticastWanted:
    """A payload is to reach all members of a tree."""

    key: NodeId
    payload: bytes


@dataclass(frozen=True, slots=True)
class NumberChanged:
    """Our contribution to a tree's aggregate of this name, as a member or not; None withdraws it."""

    key: NodeId
    name: str
    value: float | None


class TreeReceived(NamedTuple):
    """A message of another node of a tree has arrived."""

    message: m.AnyTreeMessage


@dataclass(frozen=True, slots=True)
class LeafGone:
    """The ring has found a peer dead."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class TreeTicked:
    """The machine's deadline has passed."""


TreeEvent = MembershipWanted | MembershipEnded | MulticastWanted | NumberChanged | TreeReceived | LeafGone | TreeTicked


class SendToTree(NamedTuple):
    """Send a message; it may be lost."""

    to: str
    message: m.AnyTreeMessage


class HandDown(NamedTuple):
    """Hand over a multicast of a tree in which we are a member."""

    key: NodeId
    payload: bytes


class NotePath(NamedTuple):
    """Take note of our path to the root, ourselves first; rooted if the last of it is the root."""

    key: NodeId
    path: tuple[Peer, ...]
    is_rooted: bool


class DoubtPeer(NamedTuple):
    """Have the ring probe a silent parent: while the ring takes it for alive, it stays the next hop."""

    peer: Peer


TreeEffect = SendToTree | HandDown | NotePath | DoubtPeer | NoteMistake


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeConfig:
    """Intervals and timeouts of the nodes of a tree."""

    beat: Duration = Duration(2 * SECOND)  # between two TreeJoins of a child
    doubt: Duration = Duration(3 * SECOND)  # 1.5 beats of silence: the ring is to probe the parent
    silence_max: Duration = Duration(7 * SECOND)  # 3.5 beats of silence: the parent, or the child, is dropped


@dataclass(slots=True)
class _Child:
    peer: Peer
    heard: Instant
    summaries: m.Summaries = field(default_factory=dict)


@dataclass(slots=True)
class Tree:
    """Our place in one tree."""

    key: NodeId
    is_member: bool = False
    parent: Peer | None = None  # None: we are the root, or have none yet
    parent_heard: Instant = field(default=Instant(0))
    path: tuple[Peer, ...] = ()  # from the parent to the root
    is_rooted: bool = False
    children: dict[NodeId, _Child] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)

    def is_child_of(self, peer: Peer) -> bool:
        """Whether a peer is our parent."""
        return self.parent is not None and self.parent.id == peer.id

    def summaries(self) -> m.Summaries:
        """Return the aggregates of our subtree: our numbers merged with those of all nodes below us."""
        together = {name: m.of_one(value) for name, value in self.numbers.items()}
        for child in self.children.values():
            for name, summary in child.summaries.items():
                known = together.get(name)
                if known is not None or len(together) < m.SUMMARIES_MAX:
                    together[name] = summary if known is None else known.with_(summary)
        return together


class Trees:
    """Our places in all trees; the ring names the next hop towards a key."""

    def __init__(self, ring: Ring, config: TreeConfig, rng: Random) -> None:
        self._ring, self._config, self._rng = ring, config, rng
        self._trees: dict[NodeId, Tree] = {}
        self._timers: Timers[NodeId] = Timers()
        self._seen: dict[int, None] = {}
        self._now = Instant(0)
        self._out: list[TreeEffect] = []
        self.mistakes = 0  # exceptions that were contained

    # --- the four handles ---------------------------------------------------------------------------------------------

    def handle(self, event: TreeEvent, now: Instant) -> list[TreeEffect]:
        """Handle an event, and return the effects."""
        self._now, self._out = now, []
        match event:
            case TreeReceived(message):
                with Apart(type(message).__name__, self._mistaken):
                    self._hear(message)
            case TreeTicked():
                for key in self._timers.due(now):
                    self._timers.set(key, Instant(now + self._config.beat))
                    with Apart("tree", self._mistaken):
                        self._beat(self._trees[key])
            case MembershipWanted(key):
                self._tree(key).is_member = True
            case MembershipEnded(key):
                self._end(key)
            case NumberChanged(key, name, value):
                self._change(key, name, value)
            case MulticastWanted(key, payload):
                self._go_up(key, self._rng.getrandbits(62), payload)
            case LeafGone(peer):
                self._forget(peer)
        return self._out

    def _mistaken(self, mistake: NoteMistake) -> None:
        self.mistakes += 1
        self._out.append(mistake)

    def deadline(self) -> Instant | None:
        """Return when the next timer is due; None if there is none."""
        return self._timers.first()

    def status(self) -> dict[NodeId, Tree]:
        """Return our place in every tree."""
        return self._trees

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert not self.mistakes, self.mistakes
        for key, tree in self._trees.items():
            assert key == tree.key
            assert key in self._timers, "a tree that nobody comes back to"
            assert self._ring.own.id not in tree.children, "we are our own child"
            assert tree.parent is None or tree.parent.id != self._ring.own.id, "we are our own parent"
            assert len(tree.children) <= m.CHILDREN_MAX
            assert not (tree.is_rooted and tree.parent is not None and not tree.path), "a root without a way to it"

    def is_root(self, key: NodeId) -> bool:
        """Whether we are in a tree and own its key."""
        tree = self._trees.get(key)
        return tree is not None and tree.parent is None and tree.is_rooted

    # --- wishes -------------------------------------------------------------------------------------------------------

    def _tree(self, key: NodeId) -> Tree:
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = Tree(key)
            self._find_parent(tree)
            self._timers.set(key, Instant(self._now + self._rng.randrange(self._config.beat) + 1))
        return tree

    def _end(self, key: NodeId) -> None:
        tree = self._trees.get(key)
        if tree is not None:
            tree.is_member = False
            self._prune(tree)

    def _change(self, key: NodeId, name: str, value: float | None) -> None:
        if value is not None:
            self._tree(key).numbers[name] = value
        elif (tree := self._trees.get(key)) is not None:
            tree.numbers.pop(name, None)
            self._prune(tree)

    def _prune(self, tree: Tree) -> None:
        """Leave a tree in which we are no member and have neither numbers nor children."""
        if tree.is_member or tree.children or tree.numbers:
            return
        if tree.parent is not None:
            self._send(tree.parent, m.TreeLeave(self._ring.own, tree.key))
        self._timers.cancel(tree.key)
        del self._trees[tree.key]

    # --- parents ------------------------------------------------------------------------------------------------------

    def _find_parent(self, tree: Tree) -> None:
        """Look for a parent; tell the one that we leave, or both would aggregate our subtree."""
        before = tree.parent
        self._take_parent(tree)
        if before is not None and (tree.parent is None or tree.parent.id != before.id):
            self._send(before, m.TreeLeave(self._ring.own, tree.key))

    def _take_parent(self, tree: Tree) -> None:
        if self._ring.phase is not PeerPhase.ACTIVE:  # only an active peer can tell the next hop
            tree.parent, tree.path, tree.is_rooted = None, (), False
            return
        hop = self._ring.next_hop(tree.key)
        if hop is None:
            self._become_root(tree)
            return
        tree.parent, tree.path, tree.is_rooted = hop, (), False
        tree.parent_heard = self._now
        tree.children.pop(hop.id, None)
        self._wish(tree)

    def _become_root(self, tree: Tree) -> None:
        was_root = tree.parent is None and tree.is_rooted
        tree.parent, tree.path, tree.is_rooted = None, (), True
        if not was_root:
            self._note_path(tree)

    def _wish(self, tree: Tree) -> None:
        assert tree.parent is not None
        self._send(tree.parent, m.TreeJoin(self._ring.own, tree.key, tree.summaries()))

    def _beat(self, tree: Tree) -> None:
        """Repeat our TreeJoin, drop silent children, replace a silent parent, or leave the root's place."""
        quiet = Instant(self._now - self._config.silence_max)
        for child in [one for one in tree.children.values() if one.heard < quiet]:
            del tree.children[child.peer.id]
        if tree.parent is None:
            if not tree.is_rooted or self._ring.next_hop(tree.key) is not None:
                self._find_parent(tree)
        elif tree.parent_heard < quiet or self._is_lost(tree, tree.parent):
            self._find_parent(tree)
        else:
            self._wish(tree)
        self._prune(tree)

    def _is_lost(self, tree: Tree, parent: Peer) -> bool:
        """Have the ring probe a parent that does not answer; True if the ring names another next hop by then."""
        if tree.parent_heard >= self._now - self._config.doubt:
            return False
        self._out.append(DoubtPeer(parent))
        return self._ring.phase is PeerPhase.ACTIVE and self._ring.next_hop(tree.key) != parent

    def _forget(self, peer: Peer) -> None:
        for tree in list(self._trees.values()):
            tree.children.pop(peer.id, None)
            if tree.is_child_of(peer):
                self._find_parent(tree)

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _hear(self, message: m.AnyTreeMessage) -> None:
        if message.sender.id == self._ring.own.id:
            return
        match message:
            case m.TreeJoin():
                self._join_heard(message)
            case m.TreeTold():
                self._told(message)
            case m.TreeLeave():
                self._leave_heard(message)
            case m.TreeUp(_, key, number, payload, hops):
                if hops < HOPS_MAX:  # else it is in a loop, while the ring is changing
                    self._go_up(key, number, payload, hops + 1)
            case m.TreeDown(_, key, number, payload):
                self._go_down(key, number, payload)

    def _join_heard(self, message: m.TreeJoin) -> None:
        sender = message.sender
        if message.key not in self._trees and len(self._trees) >= TREES_MAX:
            self._send(sender, m.TreeLeave(self._ring.own, message.key))
            return
        tree = self._tree(message.key)
        if tree.is_child_of(sender):
            # Two nodes took each other for their parent while the ring changed: the one nearer to the key is it.
            self._find_parent(tree)
            if tree.is_child_of(sender):
                self._send(sender, m.TreeLeave(self._ring.own, tree.key))
                return
        if sender.id not in tree.children and len(tree.children) >= m.CHILDREN_MAX:
            self._send(sender, m.TreeLeave(self._ring.own, tree.key))
            return
        tree.children[sender.id] = _Child(sender, self._now, message.summaries)
        self._tell(sender, tree)

    def _tell(self, child: Peer, tree: Tree) -> None:
        path = (self._ring.own, *tree.path)[: m.PATH_MAX]
        self._send(child, m.TreeTold(self._ring.own, tree.key, path, tree.is_rooted))

    def _told(self, message: m.TreeTold) -> None:
        tree = self._trees.get(message.key)
        if tree is None or not tree.is_child_of(message.sender):
            self._send(message.sender, m.TreeLeave(self._ring.own, message.key))
            return
        tree.parent_heard = self._now
        if any(peer.id == self._ring.own.id for peer in message.path) or len(message.path) >= m.PATH_MAX:
            self._find_parent(tree)  # a loop
            return
        if (message.path, message.is_rooted) != (tree.path, tree.is_rooted):
            tree.path, tree.is_rooted = message.path, message.is_rooted
            self._note_path(tree)

    def _note_path(self, tree: Tree) -> None:
        self._out.append(NotePath(tree.key, (self._ring.own, *tree.path), tree.is_rooted))
        for child in tree.children.values():
            self._tell(child.peer, tree)

    def _leave_heard(self, message: m.TreeLeave) -> None:
        tree = self._trees.get(message.key)
        if tree is None:
            return
        tree.children.pop(message.sender.id, None)
        if tree.is_child_of(message.sender):
            tree.parent_heard = Instant(0)  # look for another with the next beat: now the ring might name the same one
        self._prune(tree)

    # --- up and down --------------------------------------------------------------------------------------------------

    def _go_up(self, key: NodeId, number: int, payload: bytes, hops: int = 0) -> None:
        tree = self._trees.get(key)
        if tree is None:
            hop = self._ring.next_hop(key) if self._ring.phase is PeerPhase.ACTIVE else None
            if hop is not None:
                self._send(hop, m.TreeUp(self._ring.own, key, number, payload, hops))
        elif tree.parent is not None:
            self._send(tree.parent, m.TreeUp(self._ring.own, key, number, payload, hops))
        elif tree.is_rooted:
            self._go_down(key, number, payload)

    def _go_down(self, key: NodeId, number: int, payload: bytes) -> None:
        tree = self._trees.get(key)
        if tree is None or number in self._seen:
            return
        self._seen[number] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        if tree.is_member:
            self._out.append(HandDown(key, payload))
        for child in self._children(tree):
            self._send(child, m.TreeDown(self._ring.own, key, number, payload))

    def _children(self, tree: Tree) -> Iterator[Peer]:
        return (child.peer for child in tree.children.values())

    def _send(self, to: Peer, message: m.AnyTreeMessage) -> None:
        self._out.append(SendToTree(to.address, message))
