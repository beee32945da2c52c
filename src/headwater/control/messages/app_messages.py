"""What nodes say to one another about apps: finding stewards, registering, placing and keeping instances."""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.control.messages.peer_questions import AnyAsking
from headwater.control.messages.row_messages import AnyRowMessage, RowsSent
from headwater.control.messages.state_messages import AnyStateMessage, StateTold
from headwater.model.ids import INSTANCES_MAX, NAME_CHARS_MAX, AppName, InstanceNumber, Number, PlaceNumber
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot, Term, Version
from headwater.overlay.messages import RTT_US_MAX, Hops, Ids, Message
from headwater.overlay.messages import AnyMessage as RingMessage
from headwater.overlay.tree_messages import PATH_MAX, AnyTreeMessage

CHAINS_MAX: Final = INSTANCES_MAX  # of one app
SOURCES_MAX: Final = INSTANCES_MAX
OPERATORS_MAX: Final = 1_000_000  # of one chain or on one node: their sums can be told, whoever made them up
WHENCES_MAX: Final = 8  # places in which the state of an instance may lie: each more takes a host that was silent
PHASE_CHARS_MAX: Final = 8
PLACES_MAX: Final = (
    10_000  # instances and sources on one node: sinks and sources take no room, and there must be an end
)
AROUND_MAX: Final = 12  # nodes of whose room one tells
ENTRIES_MAX: Final = 8  # of a register in one message
KEPT_MAX: Final = 50_000  # apps in one message about what is kept of a register: more than anybody has room for
APPS_MAX: Final = 1_000_000  # told of a node: it has room for a tenth of them
FLOW_BYTES_MAX: Final = 1 << 20  # texts of a few files; ten entries of a register have to fit one message

Flow = Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]
Operators = Annotated[int, Meta(ge=0, le=OPERATORS_MAX)]
Stage = Annotated[int, Meta(ge=0, le=CHAINS_MAX)]
AppCount = Annotated[int, Meta(ge=0, le=APPS_MAX)]
RoundTrip = Annotated[int, Meta(ge=0, le=RTT_US_MAX)]
AppPlace = tuple[AppName, PlaceNumber]
AppPlaceTerm = tuple[AppName, PlaceNumber, Term]


class ChainSpec(msgspec.Struct, frozen=True, array_like=True):
    """One chain of an app, as far as placing it goes."""

    name: Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
    operators: Operators
    stage: Stage
    sources: Annotated[tuple[InstanceNumber, ...], Meta(max_length=SOURCES_MAX)]  # the sources that feed it, by number
    keeps: bool = False  # rows and state lie with it once it has run: nobody else can go on in its stead
    on_demand: bool = False  # it is started when a row needs it


class AppSpec(msgspec.Struct, frozen=True, array_like=True):
    """An app, as a steward sees it. What its operators do is opaque, and only those who run them open it."""

    name: AppName
    key: NodeId  # of its tree: the root is whoever owns it
    sources: Annotated[tuple[Peer, ...], Meta(max_length=SOURCES_MAX)]  # the nodes at which its rows come in
    chains: Annotated[tuple[ChainSpec, ...], Meta(max_length=CHAINS_MAX)]
    flow: Flow = b""

    def can_be_placed(self, placed: "tuple[Placed, ...]") -> bool:
        """Whether these are instances of the app, each in one place."""
        instances = {one.instance for one in placed}
        return len(instances) == len(placed) and all(one < len(self.chains) for one in instances)


class Whence(msgspec.Struct, frozen=True, array_like=True):
    """Where an instance was before it was placed where it is: its state lies there until it is fetched."""

    host: Peer
    lot: Lot
    is_lost: bool = False  # it has been silent for long: if nobody else has it, do not wait for it much longer
    before: "Whence | None" = None  # where it was to fetch it from, and may not have done so

    def all(self) -> "Iterator[Whence]":
        """Go through all places where the state may lie, the likeliest first."""
        yield self
        if self.before is not None:
            yield from self.before.all()

    def first(self, count: int) -> "Whence":
        """Return this place and those before it, but no more than so many."""
        before = self.before.first(count - 1) if self.before is not None and count > 1 else None
        return msgspec.structs.replace(self, before=before)


def check_whences(whence: Whence | None) -> None:
    """Raise ValueError if an instance is to be fetched from more places than there are: each stands in another."""
    for _ in range(WHENCES_MAX):
        if whence is None:
            return
        whence = whence.before
    if whence is not None:
        raise ValueError(f"more than {WHENCES_MAX} places to fetch an instance from")


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """Where an instance of an app runs, and the node on the way at which its rows turn off."""

    instance: InstanceNumber
    host: Peer
    anchor: Peer
    lot: Lot = (0, 0)  # of this placement; no other has the same
    whence: Whence | None = None

    def __post_init__(self) -> None:
        """Refuse more places to fetch it from than anybody names."""
        check_whences(self.whence)

    def whences(self) -> "tuple[Whence, ...]":
        """Return where the instance may have to be fetched from."""
        return () if self.whence is None else tuple(self.whence.all())

    def lots(self) -> Iterator[Lot]:
        """Go through the lots under which something of the instance may be needed."""
        yield self.lot
        for whence in self.whences():
            yield whence.lot


AllPlaced = Annotated[tuple[Placed, ...], Meta(max_length=INSTANCES_MAX)]
Phase = Annotated[
    str, Meta(max_length=PHASE_CHARS_MAX, pattern=r"^(placing|starting|running|ending|ended)\Z")
]  # an `AppPhase`


class RegisterEntry(msgspec.Struct, frozen=True, array_like=True):
    """An app in a steward's register. Of two entries of one app the one with the higher term and version counts."""

    spec: AppSpec
    term: Term  # raised when another steward takes the app over
    version: Version  # raised with every change
    phase: Phase
    placed: AllPlaced
    owner: Peer  # who submitted it, and wants to hear when it runs
    has_run: bool = False  # so what keeps something has kept it since

    def __post_init__(self) -> None:
        """Refuse what is placed and is no instance, or twice: whoever goes on from it looks for its chain."""
        if not self.spec.can_be_placed(self.placed):
            raise ValueError(f"{self.spec.name} is not placed as it can be")

    def is_newer_than(self, other: "RegisterEntry | None") -> bool:
        """Whether this entry counts, of these two."""
        return other is None or (self.term, self.version) > (other.term, other.version)


Entries = Annotated[tuple[RegisterEntry, ...], Meta(max_length=ENTRIES_MAX)]
Apps = Annotated[tuple[AppName, ...], Meta(max_length=KEPT_MAX)]

# --- finding a steward ------------------------------------------------------------------------------------------------


class StewardAsked(Message, frozen=True, tag="sa"):
    """Who is a steward of this zone, with room for an app? Answer the asker; if you know none, ask others."""

    number: Number
    asker: Peer
    hops: Hops
    hops_left: Hops


class StewardTold(Message, frozen=True, tag="st"):
    """This one is, with so many apps; it was heard of so long ago, by whomever."""

    number: Number
    steward: Peer
    apps: AppCount
    hops: Hops
    age_us: Number = 0


class StewardUnknown(Message, frozen=True, tag="su"):
    """I know of none with room, and have asked these others of the zone, if I was to."""

    number: Number
    asked: Ids


class StewardHere(Message, frozen=True, tag="sh"):
    """I am a steward of my zone and have so many apps; negative: I am none any more."""

    apps: Annotated[int, Meta(ge=-1, le=APPS_MAX)]


class Appointed(Message, frozen=True, tag="sp"):
    """Be a steward, or have it be whom you know nearer to this place: none with room was found. Answer the asker."""

    number: Number
    asker: Peer
    place: NodeId
    hops_left: Hops
    full: Ids = ()  # stewards that the asker knows to have no room


# --- the register -----------------------------------------------------------------------------------------------------


class RegisterAsked(Message, frozen=True, tag="rg"):
    """Take care of this app. It was in a register under this term before, and is not there any more (0: never)."""

    number: Number
    spec: AppSpec
    term: Term = 0


class RegisterTold(Message, frozen=True, tag="rd"):
    """It is in my register, under this term; or, not taken, I have no room or am no steward."""

    number: Number
    app: AppName
    taken: bool
    term: Term = 0


class AppRunning(Message, frozen=True, tag="ar"):
    """Your app runs, under this term: all its instances have started."""

    app: AppName
    term: Term


class AppRunningHeard(Message, frozen=True, tag="ah"):
    """Thank you."""

    app: AppName


class PlacementTold(Message, frozen=True, tag="lw"):
    """I am going to place your app like this, where so far, as I know, it was placed like that."""

    app: AppName
    before: AllPlaced
    placed: AllPlaced


class PlacementHeard(Message, frozen=True, tag="lh"):
    """This is how it is placed: as you say, or, if you did not know how it was before, as it was."""

    app: AppName
    placed: AllPlaced
    has_run: bool  # placed like this: rows and state lie there


class EndAsked(Message, frozen=True, tag="ea"):
    """End this app; whoever has never heard of it can end it nevertheless, by its spec, above this term."""

    spec: AppSpec
    term: Term = 0


class EndKnown(Message, frozen=True, tag="ek"):
    """This app, whose steward you are, was ended through another: end it."""

    app: AppName


class EndTold(Message, frozen=True, tag="et"):
    """It has ended."""

    app: AppName


class ReplicaSent(Message, frozen=True, tag="rs"):
    """Keep these entries of a steward's register, in case it is lost; sent to the steward itself: I keep these."""

    steward: Peer
    entries: Entries


class ReplicaKept(Message, frozen=True, tag="rp"):
    """They are kept: of each app the term and version."""

    steward: Peer
    kept: Annotated[tuple[tuple[AppName, Term, Version], ...], Meta(max_length=KEPT_MAX)]
    count: AppCount  # of all apps that are kept for this steward; told is what has just come, or all


class ReplicaWanted(Message, frozen=True, tag="rw"):
    """Give me back what you keep of these apps of mine: I have forgotten them."""

    apps: Apps


class ReplicaDropped(Message, frozen=True, tag="rx"):
    """This steward has no such apps any more: forget what you keep of it."""

    steward: Peer
    apps: Apps


class HandedOver(Message, frozen=True, tag="ho"):
    """These apps are yours from now on."""

    entries: Entries


class HandedOverTaken(Message, frozen=True, tag="hk"):
    """They are mine now."""

    apps: Annotated[
        tuple[tuple[AppName, Term], ...], Meta(max_length=ENTRIES_MAX)
    ]  # and the terms under which I keep them


class AppClaimed(Message, frozen=True, tag="ac"):
    """On its way to whoever owns the app's key: this steward has the app in its register, under this term."""

    app: AppName
    key: NodeId
    term: Term
    steward: Peer
    has_ended: bool
    hops: Hops = 0


# --- placing ----------------------------------------------------------------------------------------------------------


class PathAsked(Message, frozen=True, tag="pa"):
    """Join the tree of an app, whose source you are, and tell me the way to its root."""

    app: AppName
    key: NodeId
    term: Term
    source: InstanceNumber


class PathTold(Message, frozen=True, tag="pd"):
    """This is the way from me to the root."""

    app: AppName
    source: InstanceNumber
    path: Annotated[tuple[Peer, ...], Meta(max_length=PATH_MAX)]


class RoomAsked(Message, frozen=True, tag="oa"):
    """How much room do you have, and who around you?"""

    number: Number


Around = tuple[Peer, Operators, Operators, RoundTrip]  # peer, load, capacity, round trip


class RoomTold(Message, frozen=True, tag="ot"):
    """So many operators run here, of so many that can; and around me."""

    number: Number
    load: Operators
    capacity: Operators
    around: Annotated[tuple[Around, ...], Meta(max_length=AROUND_MAX)]


class LoadTold(Message, frozen=True, tag="ld"):
    """So many operators run here now, of so many that can."""

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
    load: Operators | None = None  # operators of others that I think run there; None: I have not asked
    lot: Lot = (0, 0)  # of its placement with you
    whence: Whence | None = None  # fetch what it had there, before it runs

    def __post_init__(self) -> None:
        """Refuse more places to fetch it from than anybody names."""
        check_whences(self.whence)


class StartTold(Message, frozen=True, tag="it"):
    """It runs; or, refused, there is no room, or more runs here than you think, and others may have less to do."""

    app: AppName
    term: Term
    instance: PlaceNumber
    started: bool
    has_run: bool = False  # under that lot, and what it kept is here


class StopAsked(Message, frozen=True, tag="xa"):
    """Stop this instance, or (-1) be no source of the app any more."""

    app: AppName
    term: Term
    instance: PlaceNumber
    key: NodeId


class StopTold(Message, frozen=True, tag="xt"):
    """It is stopped."""

    app: AppName
    instance: PlaceNumber


class HostBeat(Message, frozen=True, tag="hh"):
    """These instances of apps in your care run here, each by app, instance and the term that I know."""

    hosted: Annotated[tuple[AppPlaceTerm, ...], Meta(max_length=PLACES_MAX)]
    unread: Annotated[
        tuple[tuple[AppName, InstanceNumber], ...], Meta(max_length=PLACES_MAX)
    ] = ()  # sources that are here, by number, and that nobody asked us to read
    arriving: Annotated[
        tuple[AppPlaceTerm, ...], Meta(max_length=PLACES_MAX)
    ] = ()  # do not run yet: what they had elsewhere is being fetched
    is_leaving: bool = False  # I am to leave for good: place elsewhere what runs here


class HostTold(Message, frozen=True, tag="ht"):
    """I am the steward of these of them, under these terms; these others of my apps belong elsewhere."""

    mine: Annotated[tuple[AppPlaceTerm, ...], Meta(max_length=PLACES_MAX)]
    unknown: Annotated[tuple[AppPlace, ...], Meta(max_length=PLACES_MAX)]
    strange: Annotated[
        tuple[AppPlace, ...], Meta(max_length=PLACES_MAX)
    ] = ()  # of apps that I know nothing of, unless I have yet to inherit them


class StewardChanged(Message, frozen=True, tag="sc"):
    """I am the steward of this app now; tell me of your instances."""

    app: AppName
    term: Term


class StewardMoved(Message, frozen=True, tag="sm"):
    """Somebody else is the steward of this app now, under this term."""

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
