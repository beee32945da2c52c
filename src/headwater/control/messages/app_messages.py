"""The messages between nodes about apps: finding stewards, registering, placing and keeping instances."""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.control.messages.peer_questions import AnyAsking
from headwater.control.messages.row_messages import AnyRowMessage, RowsSent
from headwater.control.messages.state_messages import AnyStateMessage, StateTold
from headwater.engine.cuts import CUTS_MAX, Cuts
from headwater.model.ids import INSTANCES_MAX, NAME_CHARS_MAX, AppName, InstanceNumber, Number, PlaceNumber
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot, Term, Version
from headwater.overlay.messages import RTT_US_MAX, Hops, Ids, Message
from headwater.overlay.messages import AnyMessage as RingMessage
from headwater.overlay.tree_messages import PATH_MAX, AnyTreeMessage

CHAINS_MAX: Final = INSTANCES_MAX  # of one app
SOURCES_MAX: Final = INSTANCES_MAX
OPERATORS_MAX: Final = 1_000_000  # of one chain or on one node: sums of them fit a message even if they are forged
WHENCES_MAX: Final = 8  # hosts that may have an instance's state: each beyond the first takes another silent host
PHASE_CHARS_MAX: Final = 8
PLACES_MAX: Final = (
    10_000  # instances and sources on one node: sinks and sources count for no load, so they need a bound
)
AROUND_MAX: Final = 12  # neighbours whose room a node reports with its own
ENTRIES_MAX: Final = 8  # of a register in one message
KEPT_MAX: Final = 50_000  # apps in one message about replicas of a register: more than a node has memory for
APPS_MAX: Final = 1_000_000  # of one node: ten times what it has memory for
FLOW_BYTES_MAX: Final = 1 << 20  # the source of a few files; `ENTRIES_MAX` entries of a register fit one message

Flow = Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]
Operators = Annotated[int, Meta(ge=0, le=OPERATORS_MAX)]
Stage = Annotated[int, Meta(ge=0, le=CHAINS_MAX)]
AppCount = Annotated[int, Meta(ge=0, le=APPS_MAX)]
RoundTrip = Annotated[int, Meta(ge=0, le=RTT_US_MAX)]
AppPlace = tuple[AppName, PlaceNumber]
AppPlaceTerm = tuple[AppName, PlaceNumber, Term]


class ChainSpec(msgspec.Struct, frozen=True, array_like=True):
    """One instance of a chain, or a sink, as far as placement needs it."""

    name: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    operators: Operators
    stage: Stage
    sources: Annotated[tuple[InstanceNumber, ...], Meta(max_length=SOURCES_MAX)]  # the sources that feed it, by number
    keeps: bool = False  # it has rows and state on its host once it has run, and cannot start elsewhere without them
    on_demand: bool = False  # it is started when a row needs it
    is_stateless: bool = False  # if its host is lost, another can go on with the rows that come from then on


class AppSpec(msgspec.Struct, frozen=True, array_like=True):
    """An app, as a steward sees it. The flow is opaque: only hosts open it."""

    name: AppName
    key: NodeId  # of its tree: the owner of the key is the root
    sources: Annotated[tuple[Peer, ...], Meta(max_length=SOURCES_MAX)]  # the nodes at which its rows come in
    chains: Annotated[tuple[ChainSpec, ...], Meta(max_length=CHAINS_MAX)]
    flow: Flow = b""

    def can_be_placed(self, placed: "tuple[Placed, ...]") -> bool:
        """Whether these are instances of the app, none of them twice."""
        instances = {one.instance for one in placed}
        return len(instances) == len(placed) and all(one < len(self.chains) for one in instances)


class Whence(msgspec.Struct, frozen=True, array_like=True):
    """The previous placement of an instance: that host has the state until the new host has fetched it."""

    host: Peer
    lot: Lot
    is_lost: bool = False  # the host has been silent for long: if no other has the state, give up sooner
    before: "Whence | None" = None  # the placement before, whose host has the state if this one never fetched it

    def all(self) -> "Iterator[Whence]":
        """Go through all placements whose host may have the state, the likeliest first."""
        yield self
        if self.before is not None:
            yield from self.before.all()

    def first(self, count: int) -> "Whence":
        """Return this placement and those before it, at most `count`."""
        before = self.before.first(count - 1) if self.before is not None and count > 1 else None
        return msgspec.structs.replace(self, before=before)


def check_whences(whence: Whence | None) -> None:
    """Raise ValueError if the chain of previous placements is longer than `WHENCES_MAX`."""
    for _ in range(WHENCES_MAX):
        if whence is None:
            return
        whence = whence.before
    if whence is not None:
        raise ValueError(f"more than {WHENCES_MAX} places to fetch an instance from")


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """The placement of an instance: its host, and the node on the path to the root where its rows turn off."""

    instance: InstanceNumber
    host: Peer
    anchor: Peer
    lot: Lot = (0, 0)  # of this placement, and of no other (a fencing token)
    whence: Whence | None = None
    cuts: Cuts = ()  # how often it began anew since a host was lost

    def __post_init__(self) -> None:
        """Refuse too long a chain of previous placements."""
        check_whences(self.whence)

    def whences(self) -> "tuple[Whence, ...]":
        """Return the placements from which the state may have to be fetched."""
        return () if self.whence is None else tuple(self.whence.all())

    def lots(self) -> Iterator[Lot]:
        """Go through the lots under which a host may hold state that is still needed."""
        yield self.lot
        for whence in self.whences():
            yield whence.lot


AllPlaced = Annotated[tuple[Placed, ...], Meta(max_length=INSTANCES_MAX)]
Phase = Annotated[
    str, Meta(max_length=PHASE_CHARS_MAX, pattern=r"^(placing|starting|running|ending|ended)\Z")
]  # an `AppPhase`


class RegisterEntry(msgspec.Struct, frozen=True, array_like=True):
    """An app in a steward's register. Of two entries of an app, the one with the higher (term, version) wins."""

    spec: AppSpec
    term: Term  # raised when another steward takes the app over
    version: Version  # raised with every change
    phase: Phase
    placed: AllPlaced
    owner: Peer  # the node at which it was submitted
    has_run: bool = False  # so instances that keep state have some on their hosts

    def __post_init__(self) -> None:
        """Refuse placements of unknown instances, or of one instance twice: a steward looks up the chain of each."""
        if not self.spec.can_be_placed(self.placed):
            raise ValueError(f"{self.spec.name} is not placed as it can be")

    def may_begin_anew(self, placed: Placed) -> bool:
        """Whether an instance can take new rows elsewhere, while what lies on the disk of its host waits for that one.

        It keeps nothing but rows, and nothing of it is on its way to that host: what several may have taken, or have,
        nobody could tell apart.
        """
        is_stateless = self.spec.chains[placed.instance].is_stateless
        return is_stateless and placed.whence is None and len(placed.cuts) < CUTS_MAX

    def is_newer_than(self, other: "RegisterEntry | None") -> bool:
        """Whether this entry wins over another."""
        return other is None or (self.term, self.version) > (other.term, other.version)


Entries = Annotated[tuple[RegisterEntry, ...], Meta(max_length=ENTRIES_MAX)]
Apps = Annotated[tuple[AppName, ...], Meta(max_length=KEPT_MAX)]

# --- finding a steward ------------------------------------------------------------------------------------------------


class StewardAsked(Message, frozen=True, tag="sa"):
    """Which steward of this zone has room for an app? Answer the asker; if you know none, ask others."""

    number: Number
    asker: Peer
    hops: Hops
    hops_left: Hops


class StewardTold(Message, frozen=True, tag="st"):
    """This is a steward with room; it had so many apps `age_us` ago."""

    number: Number
    steward: Peer
    apps: AppCount
    hops: Hops
    age_us: Number = 0


class StewardUnknown(Message, frozen=True, tag="su"):
    """I know of no steward with room; I have passed the question on to these peers of the zone."""

    number: Number
    asked: Ids


class StewardHere(Message, frozen=True, tag="sh"):
    """I am a steward of my zone and have so many apps; negative: I have stopped being one."""

    apps: Annotated[int, Meta(ge=-1, le=APPS_MAX)]


class Appointed(Message, frozen=True, tag="sp"):
    """Become a steward, or pass this to a peer of the zone nearer to this place. The steward answers the asker."""

    number: Number
    asker: Peer
    place: NodeId
    hops_left: Hops
    full: Ids = ()  # stewards without room, as far as the asker knows


# --- the register -----------------------------------------------------------------------------------------------------


class RegisterAsked(Message, frozen=True, tag="rg"):
    """Take this app into your register, or renew its lease. The term is the highest that the owner knows (0: none)."""

    number: Number
    spec: AppSpec
    term: Term = 0


class RegisterTold(Message, frozen=True, tag="rd"):
    """The app is in my register, under this term; or, not taken, I have no room or am no steward."""

    number: Number
    app: AppName
    taken: bool
    term: Term = 0


class AppRunning(Message, frozen=True, tag="ar"):
    """Your app runs, under this term: all its instances have started."""

    app: AppName
    term: Term


class AppRunningHeard(Message, frozen=True, tag="ah"):
    """I acknowledge your AppRunning."""

    app: AppName


class PlacementTold(Message, frozen=True, tag="lw"):
    """I propose to place your app like this, where it was placed like that before (a compare-and-set by the owner)."""

    app: AppName
    before: AllPlaced
    placed: AllPlaced


class PlacementHeard(Message, frozen=True, tag="lh"):
    """The placement that counts: the proposed one, or the previous one if your `before` was not it."""

    app: AppName
    placed: AllPlaced
    has_run: bool  # placed like this: its hosts have rows and state


class EndAsked(Message, frozen=True, tag="ea"):
    """End this app. A steward that does not know it ends it all the same, by its spec and above this term."""

    spec: AppSpec
    term: Term = 0


class EndKnown(Message, frozen=True, tag="ek"):
    """Another steward has ended this app, which is in your register: end it."""

    app: AppName


class EndTold(Message, frozen=True, tag="et"):
    """The app has ended."""

    app: AppName


class ReplicaSent(Message, frozen=True, tag="rs"):
    """Keep a replica of these entries of a steward's register; sent to the steward itself: I keep these of yours."""

    steward: Peer
    entries: Entries


class ReplicaKept(Message, frozen=True, tag="rp"):
    """I keep these replicas: of each app the term and version."""

    steward: Peer
    kept: Annotated[tuple[tuple[AppName, Term, Version], ...], Meta(max_length=KEPT_MAX)]
    count: AppCount  # of all apps that I keep for this steward; `kept` has those just received, or all


class ReplicaWanted(Message, frozen=True, tag="rw"):
    """Send me your replicas of these apps of mine: I was restarted and have lost them."""

    apps: Apps


class ReplicaDropped(Message, frozen=True, tag="rx"):
    """Drop your replicas of these apps of this steward."""

    steward: Peer
    apps: Apps


class HandedOver(Message, frozen=True, tag="ho"):
    """Take over these apps of mine."""

    entries: Entries


class HandedOverTaken(Message, frozen=True, tag="hk"):
    """I have taken over these apps."""

    apps: Annotated[
        tuple[tuple[AppName, Term], ...], Meta(max_length=ENTRIES_MAX)
    ]  # and the terms that they have with me


class AppClaimed(Message, frozen=True, tag="ac"):
    """On its way to the owner of the app's key: this steward has the app in its register, under this term."""

    app: AppName
    key: NodeId
    term: Term
    steward: Peer
    has_ended: bool
    hops: Hops = 0


# --- placing ----------------------------------------------------------------------------------------------------------


class PathAsked(Message, frozen=True, tag="pa"):
    """Join the tree of an app, of which you have a source, and tell me your path to its root."""

    app: AppName
    key: NodeId
    term: Term
    source: InstanceNumber


class PathTold(Message, frozen=True, tag="pd"):
    """This is the path from me to the root."""

    app: AppName
    source: InstanceNumber
    path: Annotated[tuple[Peer, ...], Meta(max_length=PATH_MAX)]


class RoomAsked(Message, frozen=True, tag="oa"):
    """How much room do you and the nodes around you have?"""

    number: Number


Around = tuple[Peer, Operators, Operators, RoundTrip]  # peer, load, capacity, round trip


class RoomTold(Message, frozen=True, tag="ot"):
    """So many operators run here, of so many that can; and the same of nodes around me."""

    number: Number
    load: Operators
    capacity: Operators
    around: Annotated[tuple[Around, ...], Meta(max_length=AROUND_MAX)]


class LoadTold(Message, frozen=True, tag="ld"):
    """So many operators run here, of so many that can."""

    load: Operators
    capacity: Operators


class StartAsked(Message, frozen=True, tag="ia"):
    """Run this instance, or (negative) read this source of the app."""

    app: AppName
    term: Term
    instance: PlaceNumber
    chain: ChainSpec
    anchor: Peer
    flow: Flow = b""
    key: NodeId = NodeId(b"")  # of the app's tree
    load: Operators | None = None  # operators of other apps that I think run there; None: I have not asked
    lot: Lot = (0, 0)  # of its placement with you
    whence: Whence | None = None  # fetch what it had there, before it runs
    cuts: Cuts = ()

    def __post_init__(self) -> None:
        """Refuse too long a chain of previous placements."""
        check_whences(self.whence)


class StartTold(Message, frozen=True, tag="it"):
    """The instance runs; or, refused, I have no room, or more load than you think, so that another may have less."""

    app: AppName
    term: Term
    instance: PlaceNumber
    started: bool
    has_run: bool = False  # it ran here under that lot, and its state is here


class StopAsked(Message, frozen=True, tag="xa"):
    """Stop this instance, or (negative) stop reading this source of the app."""

    app: AppName
    term: Term
    instance: PlaceNumber
    key: NodeId


class StopTold(Message, frozen=True, tag="xt"):
    """The instance has stopped."""

    app: AppName
    instance: PlaceNumber


class HostBeat(Message, frozen=True, tag="hh"):
    """These instances of apps in your care run here, each by app, instance and the term that I know."""

    hosted: Annotated[tuple[AppPlaceTerm, ...], Meta(max_length=PLACES_MAX)]
    unread: Annotated[
        tuple[tuple[AppName, InstanceNumber], ...], Meta(max_length=PLACES_MAX)
    ] = ()  # sources here, by number, that no steward has asked us to read since we started
    arriving: Annotated[
        tuple[AppPlaceTerm, ...], Meta(max_length=PLACES_MAX)
    ] = ()  # instances that do not run yet: their state is being fetched
    is_leaving: bool = False  # I am to leave for good: place my instances elsewhere


class HostTold(Message, frozen=True, tag="ht"):
    """The answer to a HostBeat: I am the steward of `mine`, under these terms; stop `unknown`, placed elsewhere."""

    mine: Annotated[tuple[AppPlaceTerm, ...], Meta(max_length=PLACES_MAX)]
    unknown: Annotated[tuple[AppPlace, ...], Meta(max_length=PLACES_MAX)]
    strange: Annotated[
        tuple[AppPlace, ...], Meta(max_length=PLACES_MAX)
    ] = ()  # of apps that I do not know; I may inherit them yet


class StewardChanged(Message, frozen=True, tag="sc"):
    """I am the steward of this app from this term on; tell me of your instances."""

    app: AppName
    term: Term


class StewardMoved(Message, frozen=True, tag="sm"):
    """This other steward has the app, under this term."""

    app: AppName
    term: Term
    steward: Peer


ControlMessage = (
    StewardAsked
    | StewardTold
    | StewardUnknown
    | StewardHere
    | Appointed
    | RegisterAsked
    | RegisterTold
    | AppRunning
    | AppRunningHeard
    | PlacementTold
    | PlacementHeard
    | EndAsked
    | EndTold
    | EndKnown
    | ReplicaSent
    | ReplicaKept
    | ReplicaWanted
    | ReplicaDropped
    | HandedOver
    | HandedOverTaken
    | AppClaimed
    | PathAsked
    | PathTold
    | RoomAsked
    | RoomTold
    | LoadTold
    | StartAsked
    | StartTold
    | StopAsked
    | StopTold
    | HostBeat
    | HostTold
    | StewardChanged
    | StewardMoved
)

AnyNodeMessage = RingMessage | AnyTreeMessage | ControlMessage | AnyRowMessage | AnyStateMessage | AnyAsking
BULKY: Final = frozenset({RowsSent, StateTold})  # megabytes of rows or state, for which no heartbeat may wait
