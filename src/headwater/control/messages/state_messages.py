"""The messages between the old and the new host of an instance that moves: its state travels in pieces."""

from collections.abc import Hashable
from typing import Annotated, Final

from msgspec import Meta

from headwater.control.messages.row_messages import Origin
from headwater.model.ids import AppName, InstanceNumber, Numbered
from headwater.model.terms import Lot
from headwater.overlay.messages import Message

PIECE_BYTES: Final = 1 << 20  # about: a link of 20 MB/s is kept busy at a round trip of 50 ms
ENTRY_BYTES: Final = 8 << 20  # the part of a single entry in one message, which has at most 16 MB
HELD_MAX: Final = 50_000  # pieces of state in one message; the smallest have some twenty bytes
RECEIVED_MAX: Final = 10_000  # stores that have sent rows to one instance
NAME_BYTES_MAX: Final = 500  # of an entry of state: with its prefix, a key of the store has 511

TIMES_BYTES_MAX: Final = 1 << 20
OPERATORS_MAX: Final = 1_000_000  # of a flow

OperatorNumber = Annotated[int, Meta(ge=0, lt=OPERATORS_MAX)]
EntryName = Annotated[bytes, Meta(max_length=NAME_BYTES_MAX)]
EntryPart = Annotated[bytes, Meta(max_length=ENTRY_BYTES + PIECE_BYTES)]
Place = tuple[OperatorNumber, EntryName, Numbered]
Held = tuple[OperatorNumber, EntryName, Numbered, EntryPart]
Stood = tuple[Origin, Numbered]  # a store, and the number up to which the instance has received its rows


class StateAsked(Message, frozen=True, tag="va"):
    """I am to run this instance, which you have under this lot: send me the piece of its state after this place."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    after: Place


class StateTold(Message, frozen=True, tag="vt"):
    """The piece of state after that place. The last piece carries the instance's progress: received rows and times."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    after: Place
    turns: Numbered  # of the instance so far: if it has run since the first piece, begin anew
    held: Annotated[tuple[Held, ...], Meta(max_length=HELD_MAX)] = ()
    is_last: bool = False
    received: Annotated[tuple[Stood, ...], Meta(max_length=RECEIVED_MAX)] = ()
    times: Annotated[bytes, Meta(max_length=TIMES_BYTES_MAX)] | None = None

    @property
    def brings(self) -> Hashable:
        """The piece, as of this number of turns."""
        return "state", self.app, self.instance, self.lot, self.after, self.turns


class StateDelayed(Message, frozen=True, tag="vd"):
    """I send the state once the instance has emptied its queue here; not `is_here`: I am still fetching it myself."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    is_here: bool


class StateUnknown(Message, frozen=True, tag="vu"):
    """I do not have the state of this instance under that lot, or not for you."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateLost(Message, frozen=True, tag="vl"):
    """No host answers with the state of what I am to run; or I have a copy, but the old host does not release it."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    has_copy: bool


class StateTaken(Message, frozen=True, tag="vk"):
    """I have all of the state, and run the instance once you have deleted what you have under that lot."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateForgotten(Message, frozen=True, tag="vf"):
    """I have deleted the instance's state: you alone have it, and may run it."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateRuns(Message, frozen=True, tag="vr"):
    """I acknowledge your StateForgotten: the instance runs with me."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateSought(Message, frozen=True, tag="vs"):
    """Do you still have this instance under this lot?"""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateHere(Message, frozen=True, tag="vh"):
    """I have the instance under this lot: no other host has taken it over."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


AnyStateMessage = (
    StateAsked
    | StateTold
    | StateDelayed
    | StateUnknown
    | StateLost
    | StateTaken
    | StateForgotten
    | StateRuns
    | StateSought
    | StateHere
)
