"""What nodes say to one another about an instance that moves: its state is asked for, told in pieces, and taken."""

from collections.abc import Hashable
from typing import Annotated, Final

from msgspec import Meta

from headwater.control.messages.row_messages import Origin
from headwater.model.ids import AppName, InstanceNumber, Numbered
from headwater.model.terms import Lot
from headwater.overlay.messages import Message

PIECE_BYTES: Final = 1 << 20  # about: a link of 20 MB/s is kept busy at a round trip of 50 ms
ENTRY_BYTES: Final = (
    8 << 20
)  # of a single entry at once: a message takes 16 MB, and each part is joined to those before
HELD_MAX: Final = 50_000  # pieces of state in one message; the smallest have some twenty bytes
RECEIVED_MAX: Final = 10_000  # stores that have sent rows to one instance
NAME_BYTES_MAX: Final = 500  # of an entry of state: with where it lies, a key of the store has 511

TIMES_BYTES_MAX: Final = 1 << 20
OPERATORS_MAX: Final = 1_000_000  # of a flow

OperatorNumber = Annotated[int, Meta(ge=0, lt=OPERATORS_MAX)]
EntryName = Annotated[bytes, Meta(max_length=NAME_BYTES_MAX)]
EntryPart = Annotated[bytes, Meta(max_length=ENTRY_BYTES + PIECE_BYTES)]
Place = tuple[OperatorNumber, EntryName, Numbered]
Held = tuple[OperatorNumber, EntryName, Numbered, EntryPart]
Stood = tuple[Origin, Numbered]  # up to which number an instance has the rows of one store


class StateAsked(Message, frozen=True, tag="va"):
    """This instance, which you have under this lot, is to run with me: give me what follows this place in its state."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    after: Place


class StateTold(Message, frozen=True, tag="vt"):
    """This is what follows that place. With the last of it: where the instance stands."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    after: Place
    turns: Numbered  # of the instance so far: if they have changed, begin anew
    held: Annotated[tuple[Held, ...], Meta(max_length=HELD_MAX)] = ()
    is_last: bool = False
    received: Annotated[tuple[Stood, ...], Meta(max_length=RECEIVED_MAX)] = ()
    times: Annotated[bytes, Meta(max_length=TIMES_BYTES_MAX)] | None = None

    @property
    def brings(self) -> Hashable:
        """The piece, as it was after so many turns."""
        return "state", self.app, self.instance, self.lot, self.after, self.turns


class StateDelayed(Message, frozen=True, tag="vd"):
    """I have it, and give it to you when what waits for the instance here is done; or I am about to have it myself."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    is_here: bool


class StateUnknown(Message, frozen=True, tag="vu"):
    """I have no such instance under that lot."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateLost(Message, frozen=True, tag="vl"):
    """What I am to run under this lot is nowhere to be had; or I have a copy, and nobody tells me that I may use it."""

    app: AppName
    instance: InstanceNumber
    lot: Lot
    has_copy: bool


class StateTaken(Message, frozen=True, tag="vk"):
    """I have all of it, and run the instance once you have forgotten what you have under that lot."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateForgotten(Message, frozen=True, tag="vf"):
    """I have nothing of it any more."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateRuns(Message, frozen=True, tag="vr"):
    """I have heard it: the instance runs with me."""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateSought(Message, frozen=True, tag="vs"):
    """Do you have this instance under this lot?"""

    app: AppName
    instance: InstanceNumber
    lot: Lot


class StateHere(Message, frozen=True, tag="vh"):
    """I do: nobody has taken it."""

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
