"""The story of one seed: a ring grows, apps are deployed, faults strike, then everything heals and must be whole.

First safety: the invariants of a machine after every event it handled, and those of the whole world once a second; no
node delivers a routed message twice, or before it is in the ring. Then liveness: with all faults ended, ring, trees and
apps are whole again within `HEALING_S` of virtual time; a message routed to a key arrives at its owner, a multicast at
every member of an app's tree, both once; and the members' aggregates add up at the root.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headwater.model.peers import id_of
from headwater.model.time import SECOND, Instant
from headwater.overlay.events import SendingWanted
from headwater.overlay.trees import MulticastWanted, NumberChanged
from headwater.sim.faults import AppsComeAndGo, CutLinks, Fault, FlakyLinks, Partitions, SlowHosts, faults_named
from headwater.sim.network import Links
from headwater.sim.rings import owner_among
from headwater.sim.troubled import NODES_MAX, Broken, TroubledWorld
from headwater.sim.witness import Witness

NODES_MIN: Final = 3
# The shares of rings by number of nodes, uniform within a range. A third has more than eight nodes, and one in twenty
# more than 32, where leaf sets do not reach round the ring. Twice the nodes cost more than twice the time: rings of 64
# are few, or they would take most of it.
SIZES: Final = (
    (0.36, range(NODES_MIN, 5)),
    (0.30, range(5, 9)),
    (0.23, range(9, 15)),
    (0.06, range(15, 33)),
    (0.04, range(33, 41)),
    (0.01, range(41, NODES_MAX + 1)),
)
GROWING_S: Final = 120  # the most until an undisturbed ring is whole
HEALING_S: Final = 300  # the most until a disturbed ring is whole again
LATE_S: Final = 5.0  # after healing: nodes that were cut off may still be found dead, and are met again
TROUBLE_S: Final = (20.0, 60.0)  # how long faults strike
NARROW: Final = 1 / 3  # of all stories have links that carry little
# The bandwidth of such a link, log-uniform. At half the least, a ring of 64 with four nodes on a host has so much to
# repair after a storm that it keeps finding nodes dead whose heartbeats wait in send queues.
BYTES_PER_S: Final = (128_000, 4_000_000)
PROBES: Final = 8  # messages to random keys, after healing
PROBES_S: Final = 10  # for them to arrive, and for numbers to climb a tree, one node with every beat of two seconds
COUNTED: Final = "members"
FAULTS_TOLD: Final = 6  # faults that a message quotes
TOUCH_LINKS: Final = (FlakyLinks, CutLinks, Partitions, SlowHosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What broke in a story."""

    what: str
    at_s: float
    lately: tuple[str, ...]  # the last events of the nodes concerned


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryOutcome:
    """How the story of a seed ended."""

    seed: int
    faults: str
    nodes: int
    apps: int
    events: int
    virtual_s: float
    happened: dict[str, int]  # how often what went wrong, and how many apps came and went
    excused: dict[str, int]  # how many apps are not as their users want them, by why that is nobody's fault
    healed_in_s: float | None  # None: it failed before, or never was whole again
    digest: str
    failure: Failure | None
    flow: str = ""  # the file or application whose rows were under way

    @property
    def replay(self) -> str:
        """The command that replays the story."""
        flow = f" {self.flow}" if self.flow else ""
        return f"headwater sim{flow} --seed {self.seed} --faults {self.faults} --nodes {self.nodes}"


def told(seed: int, faults: str, nodes: int | None = None, tell: Callable[[str], None] | None = None) -> StoryOutcome:
    """Run the story of a seed, and return its outcome."""
    return Story(seed, faults, nodes, tell).run()


def links_drawn(rng: Random) -> Links:
    """Return links without a limit, or in one story of three with the bandwidth of a poor radio link."""
    if rng.random() >= NARROW:
        return Links()
    least, most = BYTES_PER_S
    return Links(bytes_per_s=round(least * (most / least) ** rng.random()))


def nodes_drawn(chance: float) -> int:
    """Return how many nodes a ring has, by a number between 0 and 1."""
    for share, sizes in SIZES:
        if chance < share:
            return sizes[int(chance / share * len(sizes))]
        chance -= share
    return NODES_MAX


class Story:
    """One seed, from the first node to the last probe."""

    def __init__(self, seed: int, faults: str, nodes: int | None, tell: Callable[[str], None] | None) -> None:
        """Draw the world; `nodes` fixes their number, while the seed determines all else."""
        self._seed, self._names, self._faults = seed, faults, faults_named(faults)
        self._rng = Random(f"{seed}/story")
        drawn = nodes_drawn(self._rng.random())
        self._nodes = drawn if nodes is None else nodes
        self._witness = Witness(tell)
        self._healed_in_s: float | None = None
        self._world = self._make_world(
            seed,
            nodes=self._nodes,
            zones=self._rng.randint(1, 4),
            links_fail=any(isinstance(fault, TOUCH_LINKS) for fault in self._faults),
            witness=self._witness,
            links=links_drawn(Random(f"{seed}/links")),
        )

    def _make_world(self, seed: int, **details: Any) -> TroubledWorld:
        return TroubledWorld(seed, **details)

    def _acts(self) -> Sequence[Callable[[], None]]:
        return (self._grow, self._deploy, self._suffer, self._heal, self._probe)

    def run(self) -> StoryOutcome:
        """Run all acts."""
        failure = None
        try:
            for act in self._acts():
                act()
        except Broken as broken:
            failure = self._failed(str(broken), broken.concerned)
        except Exception as fault:  # a machine broke one of its invariants, or simply broke
            where = traceback.extract_tb(fault.__traceback__)[-1]
            what = f"{type(fault).__name__}: {fault} ({where.name}, line {where.lineno})"
            failure = self._failed(what, (self._world.at_work,))
        return self._outcome(failure)

    def _failed(self, what: str, concerned: tuple[str, ...]) -> Failure:
        at_s = self._world.timeline.now / SECOND
        return Failure(what=what, at_s=at_s, lately=tuple(self._witness.lately(concerned)))

    def _outcome(self, failure: Failure | None) -> StoryOutcome:
        world = self._world
        return StoryOutcome(
            seed=self._seed,
            faults=self._names,
            nodes=self._nodes,
            apps=len(world.specs),
            events=world.timeline.happened,
            virtual_s=round(world.timeline.now / SECOND, 3),
            happened=dict(sorted(world.happened.items())),
            excused=dict(sorted(world.excuses().items())),
            healed_in_s=self._healed_in_s,
            digest=self._witness.digest(),
            failure=failure,
        )

    # --- the acts -----------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Let hosts join one by one, and in some stories half of all nodes at once."""
        world, rng = self._world, self._rng
        if world.network.counts_bytes:
            world.note(f"links carry {world.network.links.bytes_per_s:,} bytes a second", "narrow links")
        world.add()
        at_once = self._nodes // 2 if rng.random() < 0.3 else 0
        while (lacking := self._nodes - len(world.nodes)) > 0:
            world.join(lacking)
            if lacking > at_once:
                world.run(rng.uniform(0.05, 0.5))
        self._demand(GROWING_S)

    def _deploy(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            self._world.submit_some_app(self._rng)
        self._world.run(self._rng.uniform(0, 6))  # in some stories faults strike before all run

    def _suffer(self) -> None:
        ends = Instant(self._world.timeline.now + int(self._rng.uniform(*TROUBLE_S) * SECOND))
        for fault in self._troubles():
            for at in self._strikes(fault, ends):
                self._world.timeline.at(at, fault.strike, self._world, self._rng)
        rng = Random(f"{self._seed}/letters")
        while self._world.timeline.now < ends:
            self._post(rng)
            self._world.run(1.0)
            self._world.check_safety()

    def _post(self, rng: Random) -> None:
        """Route a message to a random key during faults; it may be lost, and its owner may change on the way."""
        world = self._world
        if world.nodes:
            letter = f"letter of {world.timeline.now / SECOND:.3f} s"
            world.tell(rng.choice(sorted(world.nodes)), SendingWanted(id_of(rng.getrandbits(128)), letter.encode()))

    def _troubles(self) -> Sequence[Fault]:
        return (*self._faults, AppsComeAndGo())

    def _strikes(self, fault: Fault, ends: Instant) -> Iterator[int]:
        """Draw when a fault strikes: a Poisson process of its average interval, with the first strike soon."""
        at = self._world.timeline.now + self._rng.uniform(0, min(fault.every_s, TROUBLE_S[0])) * SECOND
        while at < ends:
            yield int(at)
            at += self._rng.expovariate(1 / fault.every_s) * SECOND

    def _heal(self) -> None:
        world = self._world
        world.heal()
        began = world.timeline.now
        world.run(LATE_S)
        self._demand(HEALING_S)
        self._healed_in_s = (world.timeline.now - began) / SECOND

    def _demand(self, within_s: int) -> None:
        world = self._world
        if not world.run_until(world.is_whole, at_most=within_s, step=2.0):
            faults = world.faults()
            more = f"; and {len(faults) - FAULTS_TOLD} more" if len(faults) > FAULTS_TOLD else ""
            what = f"not whole after {within_s} s: {'; '.join(faults[:FAULTS_TOLD])}{more}"
            raise Broken(what, *world.concerned())
        world.check_safety()

    def _probe(self) -> None:
        """Demand that routed messages reach their owners, multicasts all members, and aggregates the root."""
        world, rng = self._world, self._rng
        keys = {f"probe{number}".encode(): id_of(rng.getrandbits(128)) for number in range(PROBES)}
        senders = {payload: rng.choice(sorted(world.nodes)) for payload in keys}
        for payload, key in keys.items():
            world.tell(senders[payload], SendingWanted(key, payload))
        members = {app: found for app in world.specs if world.runs(app) and (found := world.members(app))}
        for app, addresses in members.items():
            self._call(app, addresses)
        world.run(PROBES_S)
        for payload, key in keys.items():
            owner = owner_among((node.own for node in world.nodes.values()), key).address
            arrived = world.delivered.get(payload, [])
            if arrived != [owner]:
                raise Broken(f"{payload.decode()} belongs to {owner} and arrived at {arrived}", senders[payload], owner)
        for app, addresses in members.items():
            self._check_called(app, addresses)
        self._demand(HEALING_S)  # what turned up late, such as an old replica of a register, has broken nothing again

    def _call(self, app: str, members: list[str]) -> None:
        """Have one member of an app's tree multicast, and every member contribute 1 to an aggregate."""
        world, key = self._world, self._world.specs[app].key
        world.tell(self._rng.choice(members), MulticastWanted(key, app.encode()))
        for address in members:
            world.tell(address, NumberChanged(key, COUNTED, 1.0))

    def _check_called(self, app: str, members: list[str]) -> None:
        world, key = self._world, self._world.specs[app].key
        heard = sorted(world.handed_down.get(app.encode(), []))
        if heard != members:
            raise Broken(f"{members} are in the tree of {app}, and {heard} heard what went down", *members)
        trees = [node.trees.status()[key] for node in world.nodes.values() if node.trees.is_root(key)]
        sums = [tree.summaries().get(COUNTED) for tree in trees]
        if [None if one is None else one.count for one in sums] != [len(members)]:
            raise Broken(f"{len(members)} count in the tree of {app}, and at its root there are {sums}", *members)
