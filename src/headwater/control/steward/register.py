"""A steward's register, in memory, and the replicas of it that its leaves (its keepers) hold.

Entries carry a term (a fencing token) and a version. A steward that takes an app over raises the term: of two stewards
of one app, after a partition, the one with the lower term gives way at the first replica or host that knows both. No
two stewards, and no two lives of one, take an app over under the same term, since a part of it is drawn at random.

A steward that restarts quickly has lost its register while no peer has found it dead. So a steward compares its
register with its keepers periodically (anti-entropy), and a keeper sends its replica to a steward that is silent.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.messages.events import NoteRefused
from headwater.control.steward.deployment import ENDS, AppPhase
from headwater.control.steward.register_entries import HELD_MAX, Entries, bytes_of
from headwater.model.peers import NodeId, Peer
from headwater.model.time import SECOND, Duration, Instant

Value = TypeVar("Value")

REPLICAS: Final = ("replicas", b"")
NO_PAUSE: Final = Duration(0)
GIVE_BACK_MAX: Final = Duration(32 * SECOND)  # between two whole replicas that a silent steward is sent
DROPPED_MAX: Final = 1_000  # tombstones of apps that were dropped, and of apps that went to another steward


@dataclass(slots=True)
class _Copy:
    """A replica that we keep of a steward's register."""

    steward: Peer
    heard: Instant  # when we last heard from the steward about it
    entries: Entries = field(default_factory=Entries)
    given_back: Instant | None = None  # when the silent steward was last sent it
    pause: Duration = NO_PAUSE  # until it is sent it again, doubled each time

    def hear(self, now: Instant) -> None:
        """Take note that the steward is not silent."""
        self.heard, self.pause = now, NO_PAUSE


class Register:
    """The apps in our care, what each keeper has of them, and the replicas that we keep for other stewards."""

    def __init__(self, ground: NodeContext) -> None:
        self._ground = ground
        self.entries = Entries()
        self.copies: dict[NodeId, _Copy] = {}
        self._kept_by: dict[NodeId, dict[str, tuple[int, int]]] = {}  # which leaf has which versions
        self._sent_to: dict[NodeId, dict[str, tuple[int, int, Instant]]] = {}  # unacknowledged versions, since when
        self._sends_soon = False
        self._dropped: dict[str, int] = {}  # the terms of apps that we dropped, the latest last
        self._moved: dict[str, tuple[int, Peer]] = {}  # the term and steward of apps that were ours, the latest last

    def has_room_for(self, entry: m.RegisterEntry, by: Peer, instead_of: m.RegisterEntry | None = None) -> bool:
        """Whether there is memory for an entry of another node, in place of ours; reports a refusal if not."""
        held = self.entries.bytes + sum(copy.entries.bytes for copy in self.copies.values())
        more = bytes_of(entry) - (0 if instead_of is None else bytes_of(instead_of))
        has_room = more <= 0 or held + more <= HELD_MAX
        if not has_room:
            why = f"{entry.spec.name}: what stewards know of apps is more than {HELD_MAX >> 20} MB"
            self._ground.emit(NoteRefused(by, why))
        return has_room

    def put(self, entry: m.RegisterEntry) -> None:
        """Store a new version of an entry and have it replicated."""
        known = self.entries.get(entry.spec.name)
        assert entry.is_newer_than(known), (entry.spec.name, entry.term, entry.version)
        self.entries[entry.spec.name] = entry
        self._moved.pop(entry.spec.name, None)
        self.replicate()

    def drop(self, app: str) -> m.RegisterEntry:
        """Drop an app and return its entry. Keepers drop it at the next comparison."""
        entry = self.entries.pop(app)
        for sent in self._sent_to.values():
            sent.pop(app, None)
        _remember(self._dropped, app, entry.term)
        return entry

    def hand_on(self, app: str, term: int, steward: Peer) -> None:
        """Give an app up to the steward with a higher term; we and our keepers hold it as that one's replica."""
        self.pass_to(steward, self.drop(app), term)
        _remember(self._moved, app, (term, steward))
        for peer in self._keepers():
            self._ground.send(peer, m.StewardMoved(self._ground.own, app, term, steward))

    def whose(self, app: str, above: int) -> tuple[int, Peer] | None:
        """Return the term and steward of an app that was ours, if the term is higher than `above`."""
        moved = self._moved.get(app)
        return moved if moved is not None and moved[0] > above else None

    def pass_to(self, steward: Peer, entry: m.RegisterEntry, term: int) -> None:
        """Keep an entry as a replica for the steward with a higher term, until that one has us drop it.

        That steward may be lost before it has replicated the app. The replica carries its term, which hosts know, so
        that an heir goes on above it.
        """
        if steward.id != self._ground.own.id:
            app, copy = entry.spec.name, self.copies.setdefault(steward.id, _Copy(steward, self._ground.now))
            passed: m.RegisterEntry = msgspec.structs.replace(entry, term=term, version=0)
            known = copy.entries.get(app)
            if passed.is_newer_than(known):
                copy.entries[app] = passed
            elif known is not None and passed.phase in ENDS:
                copy.entries[app] = self._ended_for(steward, known)

    def moved(self, app: str, term: int, steward: Peer) -> None:
        """Keep our replicas of an app for its steward with a higher term from here on, and point hosts to that one."""
        if steward.id == self._ground.own.id and app not in self.entries:
            return
        if app in self._moved and self._moved[app][0] < term:  # the steward that took it from us has handed it on
            _remember(self._moved, app, (term, steward))
        for identity, copy in list(self.copies.items()):
            entry = copy.entries.get(app)
            if entry is not None and identity != steward.id and entry.term < term:
                del copy.entries[app]
                if not copy.entries:
                    del self.copies[identity]
                self.pass_to(steward, entry, term)

    # --- copies of ours -----------------------------------------------------------------------------------------------

    def _keepers(self) -> list[Peer]:
        return self._ground.ring.known.leaves.neighbours(self._ground.config.replicas_side)

    def replicate(self) -> None:
        """Send keepers what they lack after `replicas_gather`, which spans the quick steps of a deployment."""
        if not self._sends_soon:
            self._sends_soon = True
            self._ground.come_back(REPLICAS, self._ground.config.replicas_gather)

    def send_copies(self) -> None:
        """Send every keeper what it lacks and is not in flight; repeat while any of them lacks something."""
        self._sends_soon = False
        lacking = False
        for peer in self._keepers():
            missing = self._missing_at(peer)
            lacking |= bool(missing)
            due = [entry for entry in missing if not self._is_on_its_way(peer, entry)]
            sent = self._sent_to.setdefault(peer.id, {})
            sent.update((entry.spec.name, (entry.term, entry.version, self._ground.now)) for entry in due)
            for start in range(0, len(due), m.ENTRIES_MAX):
                some = tuple(due[start : start + m.ENTRIES_MAX])
                self._ground.send(peer, m.ReplicaSent(self._ground.own, self._ground.own, some))
        if lacking:
            self._ground.come_back(REPLICAS, self._ground.config.retry)

    def _missing_at(self, keeper: Peer) -> list[m.RegisterEntry]:
        kept = self._kept_by.get(keeper.id, {})
        return [entry for app, entry in self.entries.items() if kept.get(app, (-1, -1)) < (entry.term, entry.version)]

    def _is_on_its_way(self, keeper: Peer, entry: m.RegisterEntry) -> bool:
        term, version, at = self._sent_to.get(keeper.id, {}).get(entry.spec.name, (-1, -1, self._ground.now))
        is_this = (term, version) == (entry.term, entry.version)
        return is_this and self._ground.now - at < self._ground.config.retry

    def compare(self) -> None:
        """Ask every keeper what it has: one that was restarted has lost its replica."""
        for peer in self._keepers():
            self._ground.send(peer, m.ReplicaSent(self._ground.own, self._ground.own, ()))

    def kept(self, message: m.ReplicaKept) -> None:
        """Take note of what a keeper has."""
        if message.steward.id != self._ground.own.id:
            return  # the receipt for another steward's replica that we passed on: we keep ours as well
        told = {app: (term, version) for app, term, version in message.kept}
        for app in told:
            self._sent_to.get(message.sender.id, {}).pop(app, None)
        ours = {app: version for app, version in told.items() if app in self.entries}  # others may be forged
        known = self._kept_by.setdefault(message.sender.id, {})
        known.update(ours)
        if len(told) == message.count:
            self._kept_by[message.sender.id] = ours
            self._judge_strange(message.sender, [one for one in message.kept if one[0] not in self.entries])
            if self._missing_at(message.sender):
                self.replicate()
        elif len(known) != message.count:  # it was restarted and has lost the others
            self._ground.send(message.sender, m.ReplicaSent(self._ground.own, self._ground.own, ()))

    def _judge_strange(self, keeper: Peer, kept: list[tuple[str, int, int]]) -> None:
        """For apps that we do not have: name their steward, have the keeper drop them, or ask for what we have lost."""
        forgotten = []
        for app, term, _ in kept:
            if moved := self.whose(app, term):
                self._ground.send(keeper, m.StewardMoved(self._ground.own, app, *moved))
            elif self._has_dropped(app, term):
                self.drop_at(keeper, [app])
            else:
                forgotten.append(app)
        if forgotten:
            self._ground.send(keeper, m.ReplicaWanted(self._ground.own, tuple(forgotten)))

    def may_forget(self, keeper: Peer, app: str) -> bool:
        """Whether a node may drop its replica of an app: it is not one of our keepers, and those have the app."""
        entry, keepers = self.entries.get(app), self._keepers()
        if entry is None or any(peer.id == keeper.id for peer in keepers):
            return False
        now = (entry.term, entry.version)
        return bool(keepers) and all(self._kept_by.get(peer.id, {}).get(app, (-1, -1)) >= now for peer in keepers)

    def has_dropped(self, entry: m.RegisterEntry) -> bool:
        """Whether we dropped an app under this entry's term or a higher one."""
        return self._has_dropped(entry.spec.name, entry.term)

    def _has_dropped(self, app: str, term: int) -> bool:
        return self._dropped.get(app, -1) >= term

    def drop_at(self, keeper: Peer, apps: Iterable[str]) -> None:
        """Have a node drop its replica of these apps."""
        if gone := tuple(apps):
            self._ground.send(keeper, m.ReplicaDropped(self._ground.own, self._ground.own, gone))

    def leaf_lost(self, peer: Peer) -> None:
        """Drop a leaf from our keepers; the next one gets a replica."""
        self._sent_to.pop(peer.id, None)
        if self._kept_by.pop(peer.id, None) is not None and self.entries:
            self.replicate()

    def leaf_gained(self, peer: Peer) -> None:
        """Replicate to a new leaf, if it is near enough to be a keeper; it may be a steward that was restarted."""
        if self.entries:
            self.replicate()
        if peer.id in self.copies:
            self.copies[peer.id].pause = NO_PAUSE

    # --- copies of others ---------------------------------------------------------------------------------------------

    def keep(self, message: m.ReplicaSent) -> None:
        """Store entries of another steward's register, and acknowledge them."""
        copy = self.copies.get(message.steward.id) or _Copy(message.steward, self._ground.now)
        copy.steward = message.steward
        if message.sender.id == message.steward.id:
            copy.hear(self._ground.now)
        for entry in message.entries:
            known = copy.entries.get(entry.spec.name)
            if entry.is_newer_than(known) and self.has_room_for(entry, message.sender, known):
                copy.entries[entry.spec.name] = self._with_its_end(entry, message.steward)
                self.copies[message.steward.id] = copy
        apps = [entry.spec.name for entry in message.entries] or copy.entries  # no entries: tell all that we have
        kept = tuple((app, copy.entries[app].term, copy.entries[app].version) for app in apps if app in copy.entries)
        self._ground.send(message.sender, m.ReplicaKept(self._ground.own, message.steward, kept, len(copy.entries)))

    def _with_its_end(self, entry: m.RegisterEntry, steward: Peer) -> m.RegisterEntry:
        """Return an entry as it is to be stored; if we know that the app was ended, mark it so and tell its steward."""
        app = entry.spec.name
        known = [self.entries.get(app), *(copy.entries.get(app) for copy in self.copies.values())]
        if entry.phase in ENDS or not any(one is not None and one.phase in ENDS for one in known):
            return entry
        return self._ended_for(steward, entry)

    def _ended_for(self, steward: Peer, entry: m.RegisterEntry) -> m.RegisterEntry:
        self._ground.send(steward, m.EndKnown(self._ground.own, entry.spec.name))
        ending: m.RegisterEntry = msgspec.structs.replace(entry, phase=AppPhase.ENDING)
        return ending

    def forget(self, message: m.ReplicaDropped) -> None:
        """Drop our replica of apps, on behalf of their steward."""
        copy = self.copies.get(message.steward.id)
        if copy is not None:
            for app in message.apps:
                copy.entries.pop(app, None)
            if not copy.entries:
                del self.copies[message.steward.id]

    def give_back_to_silent(self) -> None:
        """Send silent stewards our replicas of their registers, with backoff: a restart may have lost them.

        Not to a steward that the ring has found dead: it has an heir, and is heard again before it has its place back.
        """
        ground = self._ground
        for identity, copy in self.copies.items():
            is_silent = self.is_silent(copy, ground.config.copy_silence_max)
            is_due = copy.given_back is None or ground.now - copy.given_back >= copy.pause
            if is_silent and is_due and identity not in ground.ring.known.dead:
                copy.given_back = ground.now
                copy.pause = min(GIVE_BACK_MAX, max(ground.config.beat, Duration(2 * copy.pause)))
                self.tell_kept(copy.steward, copy)

    def pass_on(self) -> None:
        """Before we leave, send our neighbours the replicas of silent stewards: ours may be the last.

        A restarted steward may take long to rejoin the ring, and cannot find new keepers meanwhile.
        """
        for copy in self.copies.values():
            if self.is_silent(copy, self._ground.config.copy_silence_max):
                for peer in self._keepers():
                    self.tell_kept(peer, copy)

    def give_back(self, message: m.ReplicaWanted) -> None:
        """Send a steward our replica of apps that it has lost."""
        copy = self.copies.get(message.sender.id)
        if copy is not None:
            self._tell_some(copy.steward, copy, dict.fromkeys(message.apps))  # a name costs megabytes: no duplicates

    def tell_kept(self, to: Peer, copy: _Copy) -> None:
        """Send a node our whole replica of a steward's register."""
        self._tell_some(to, copy, copy.entries)

    def _tell_some(self, to: Peer, copy: _Copy, apps: Iterable[str]) -> None:
        entries = tuple(copy.entries[app] for app in apps if app in copy.entries)
        for start in range(0, len(entries), m.ENTRIES_MAX):
            some = entries[start : start + m.ENTRIES_MAX]
            self._ground.send(to, m.ReplicaSent(self._ground.own, copy.steward, some))

    def is_silent(self, copy: _Copy, silence_max: int) -> bool:
        """Whether we have not heard from a steward about its replica for longer than this."""
        return self._ground.now - copy.heard > silence_max

    def inherited(self, steward: NodeId) -> list[m.RegisterEntry]:
        """Return and drop our replica of a steward whose id we own."""
        copy = self.copies.pop(steward, None)
        return [] if copy is None else list(copy.entries.values())

    def check(self) -> None:
        """Raise if an invariant is broken."""
        for app, entry in self.entries.items():
            assert app == entry.spec.name
            assert len({placed.instance for placed in entry.placed}) == len(entry.placed), "an instance placed twice"
        assert self._ground.own.id not in self.copies


def _remember(known: dict[str, Value], app: str, value: Value) -> None:
    """Put an app behind all others, and drop the first when there are too many."""
    known.pop(app, None)
    known[app] = value
    if len(known) > DROPPED_MAX:
        del known[next(iter(known))]
