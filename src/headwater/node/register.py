"""A steward's register, and the copies that its leaves keep of it in case the steward is lost.

Entries carry a term and a version. Whoever takes an app over raises the term, so that of two who both think they are
an app's steward, after a partition, one gives way wherever they meet: in a replica, or at a host.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headwater.model.peers import NodeId, Peer
from headwater.node import messages as m
from headwater.node.part import Ground

REPLICAS: Final = ("replicas", b"")
ENTRIES_MAX: Final = 8  # in one message


@dataclass(slots=True)
class _Copy:
    """What a leaf keeps of a steward's register."""

    steward: Peer
    entries: dict[str, m.Entry] = field(default_factory=dict)


class Register:
    """The apps in our care, who keeps a copy of them, and the copies that we keep for others."""

    def __init__(self, ground: Ground) -> None:
        """Care for nothing."""
        self._ground = ground
        self.entries: dict[str, m.Entry] = {}
        self.copies: dict[NodeId, _Copy] = {}
        self._kept_by: dict[NodeId, dict[str, tuple[int, int]]] = {}  # which leaf has which versions

    def put(self, entry: m.Entry) -> None:
        """Keep a new version of an entry, and see that leaves keep it too."""
        known = self.entries.get(entry.spec.name)
        assert entry.is_newer_than(known), (entry.spec.name, entry.term, entry.version)
        self.entries[entry.spec.name] = entry
        self.replicate()

    def drop(self, apps: Iterable[str]) -> None:
        """Care for apps no more."""
        gone = tuple(app for app in apps if self.entries.pop(app, None) is not None)
        if gone:
            for peer in self._keepers():
                self._ground.send(peer, m.ReplicaDropped(self._ground.own, self._ground.own, gone))
            for kept in self._kept_by.values():
                for app in gone:
                    kept.pop(app, None)

    # --- copies of ours -----------------------------------------------------------------------------------------------

    def _keepers(self) -> list[Peer]:
        return self._ground.ring.known.leaves.neighbours(self._ground.config.replicas_side)

    def replicate(self) -> None:
        """Send every keeper what it does not have yet, and come back while any of them lacks something."""
        lacking = False
        for peer in self._keepers():
            kept = self._kept_by.setdefault(peer.id, {})
            missing = [
                entry for app, entry in self.entries.items() if kept.get(app, (-1, -1)) < (entry.term, entry.version)
            ]
            lacking |= bool(missing)
            for start in range(0, len(missing), ENTRIES_MAX):
                some = tuple(missing[start : start + ENTRIES_MAX])
                self._ground.send(peer, m.ReplicaSent(self._ground.own, self._ground.own, some))
        if lacking:
            self._ground.come_back(REPLICAS, self._ground.config.retry)

    def kept(self, message: m.ReplicaKept) -> None:
        """Take note of what a leaf keeps for us."""
        known = self._kept_by.setdefault(message.sender.id, {})
        for app, term, version in message.kept:
            known[app] = max(known.get(app, (-1, -1)), (term, version))

    def leaf_lost(self, peer: Peer) -> None:
        """Count on a leaf no more, and find another keeper."""
        if self._kept_by.pop(peer.id, None) is not None and self.entries:
            self.replicate()

    def leaf_gained(self) -> None:
        """Let a new neighbour keep a copy, if it is near enough."""
        if self.entries:
            self.replicate()

    # --- copies of others ---------------------------------------------------------------------------------------------

    def keep(self, message: m.ReplicaSent) -> None:
        """Keep entries of another's register."""
        if message.steward.id == self._ground.own.id:
            return
        copy = self.copies.setdefault(message.steward.id, _Copy(message.steward))
        copy.steward = message.steward
        for entry in message.entries:
            if entry.is_newer_than(copy.entries.get(entry.spec.name)):
                copy.entries[entry.spec.name] = entry
        kept = tuple((app, entry.term, entry.version) for app, entry in copy.entries.items())
        self._ground.send(message.sender, m.ReplicaKept(self._ground.own, message.steward, kept))

    def forget(self, message: m.ReplicaDropped) -> None:
        """Forget what we keep of apps that are no longer in a steward's care."""
        copy = self.copies.get(message.steward.id)
        if copy is not None:
            for app in message.apps:
                copy.entries.pop(app, None)
            if not copy.entries:
                del self.copies[message.steward.id]

    def inherited(self, steward: NodeId) -> list[m.Entry]:
        """Return, and keep no more, what we kept for a steward whose place is ours now."""
        copy = self.copies.pop(steward, None)
        return [] if copy is None else list(copy.entries.values())

    def check(self) -> None:
        """Raise if something is not as it must be."""
        for app, entry in self.entries.items():
            assert app == entry.spec.name
            assert len({placed.instance for placed in entry.placed}) == len(entry.placed), "an instance placed twice"
        assert self._ground.own.id not in self.copies
