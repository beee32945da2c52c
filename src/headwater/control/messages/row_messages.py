"""The messages between nodes about rows: where an instance runs, the rows, and their acknowledgement."""

from collections.abc import Hashable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.engine.channels import ORIGIN_BYTES
from headwater.engine.cuts import UNCUT, Cuts
from headwater.engine.entry_split import ENTRY_BYTES_MAX, ROW_BYTES_MAX
from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.model.batch import SCHEMA_NAME_BYTES
from headwater.model.ids import AppName, InstanceNumber, Numbered
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot
from headwater.overlay.messages import Hops, Message

ENTRIES_MAX: Final = 1_000  # in one message
SCHEMAS_MAX: Final = 100  # in one message
SCHEMAS_BYTES_MAX: Final = 1 << 20  # of all of them, unless one alone has more
BOUND_MAX: Final = 200  # instances in one message

Origin = Annotated[bytes, Meta(max_length=ORIGIN_BYTES)]
SchemaName = Annotated[bytes, Meta(min_length=SCHEMA_NAME_BYTES, max_length=SCHEMA_NAME_BYTES)]
SchemaText = Annotated[bytes, Meta(max_length=SCHEMA_BYTES_MAX)]
EntryText = Annotated[bytes, Meta(max_length=ROW_BYTES_MAX + ENTRY_BYTES_MAX)]  # a row and the entry's header


def schema_name(identity: int) -> bytes:
    """Return the name of a schema in messages."""
    return identity.to_bytes(SCHEMA_NAME_BYTES, "big")


class Sending(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of an outbox, as it travels."""

    app: AppName
    key: NodeId  # of the app's tree
    instance: InstanceNumber
    origin: Origin  # the name of the sending store's queues
    base: Numbered  # the start of the outbox: everything before it has been acknowledged
    since: Numbered
    until: Numbered
    entries: Annotated[tuple[tuple[Numbered, EntryText], ...], Meta(max_length=ENTRIES_MAX)]
    schemas: Annotated[
        tuple[tuple[SchemaName, SchemaText], ...], Meta(max_length=SCHEMAS_MAX)
    ]  # those of the entries that the receiver may not know
    cut: Lot = UNCUT  # under which they are sent
    bound_to: NodeId | None = None  # in doubt: this node, and no other, is to take those that it has not taken


class RowsSent(Message, frozen=True, tag="ws"):
    """Rows for an instance: store them if it runs with you, else forward them. Acknowledge to the `keeper`."""

    keeper: Peer
    steward: Peer | None
    hops: Hops
    sending: Sending

    @property
    def brings(self) -> Hashable:
        """The stretch of the outbox: retransmissions by another path are the same."""
        sending = self.sending
        return "rows", sending.app, sending.instance, sending.origin, sending.since, sending.until


class RowsKept(Message, frozen=True, tag="wk"):
    """All rows of this outbox before this number are durable here (a cumulative acknowledgement)."""

    app: AppName
    instance: InstanceNumber
    origin: Origin
    until: Numbered
    room_bytes: Numbered  # how much more I would take now (a credit)
    lacks_schema: bool = False  # I do not have a schema that the entries name


class RowsCut(Message, frozen=True, tag="wx"):
    """This instance was begun anew since these hosts were lost: send its rows as such.

    I refuse those of this outbox; or, without a name, I was that host, and whatever I had of yours you know by now.
    """

    app: AppName
    instance: InstanceNumber
    cuts: Cuts
    origin: Origin = b""


class InstancesHere(Message, frozen=True, tag="wh"):
    """These instances of an app run on these nodes. Told up the tree, so that climbing rows meet them."""

    app: AppName
    key: NodeId
    bound: Annotated[tuple[tuple[InstanceNumber, Peer], ...], Meta(max_length=BOUND_MAX)]
    hops: Hops


class HomeWanted(Message, frozen=True, tag="ww"):
    """Rows have reached the root, which does not know a host of this instance: name it, or place the instance."""

    app: AppName
    instance: InstanceNumber


class HomeTold(Message, frozen=True, tag="wt"):
    """This node runs the instance."""

    app: AppName
    instance: InstanceNumber
    host: Peer


AnyRowMessage = RowsSent | RowsKept | RowsCut | InstancesHere | HomeWanted | HomeTold
