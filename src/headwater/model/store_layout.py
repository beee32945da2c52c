"""The keys of everything in a node's store.

A key begins with a letter for its kind, then the app's number, so that an app is a few contiguous ranges and can be
deleted as such. Keys of no app, or that outlive it, begin with an exclamation mark.
"""

import struct
from typing import Final

from headwater.model.ids import AppId, InstanceId

FORMAT: Final = 4  # raised when the meaning of any key or record changes; another format is refused, not guessed at
_APP: Final = struct.Struct(">cI")
INSTANCE_KEY: Final = struct.Struct(">cII")
_ENTRY: Final = struct.Struct(">cIIQ")
FORMAT_KEY: Final = b"!format"
TERM_KEY: Final = b"!term"
NAME_KEY: Final = b"!name"  # by which other stores name this one
LAST_APP_KEY: Final = b"!apps"  # the largest app number so far
DRAINING_KEY: Final = b"!draining"  # the node is to leave for good
FLOW_PREFIX: Final = b"!flow/"  # flows with a part here, by app
OWNED_PREFIX: Final = b"!owned/"  # apps whose owner this node is
DISOWNED_PREFIX: Final = b"!disowned/"  # placements that the node said it does not have, and must never run
RUBBISH_PREFIX: Final = b"!rubbish/"  # app numbers whose keys are to be deleted, in slices


def app_record_key(name: str) -> bytes:
    """The key of an app's record, by its name."""
    return b"A" + name.encode()


def queue_key(instance: InstanceId) -> bytes:
    """The key of a queue's record."""
    return INSTANCE_KEY.pack(b"M", instance.app, instance.number)


def queues_prefix(app: AppId) -> bytes:
    """The prefix of the records of an app's queues."""
    return _APP.pack(b"M", app)


def entries_prefix(instance: InstanceId) -> bytes:
    """The prefix of a queue's entries."""
    return INSTANCE_KEY.pack(b"Q", instance.app, instance.number)


def entry_key(instance: InstanceId, sequence: int) -> bytes:
    """The key of one entry of a queue."""
    return _ENTRY.pack(b"Q", instance.app, instance.number, sequence)


def entry_sequence(key: bytes) -> int:
    """Return the number of the entry with this key."""
    return int(_ENTRY.unpack(key)[3])


def counts_key(instance: InstanceId) -> bytes:
    """The key of an instance's row counts."""
    return INSTANCE_KEY.pack(b"C", instance.app, instance.number)


def position_key(app: AppId, number: int) -> bytes:
    """The key of a source's or sink's position, by its number among the declarations."""
    return INSTANCE_KEY.pack(b"P", app, number)


def code_prefix(app: AppId) -> bytes:
    """The prefix of an app's code."""
    return _APP.pack(b"G", app)


def code_key(app: AppId, number: int) -> bytes:
    """The key of one chain's code; a node never reuses a number, so code can be cached by it."""
    return INSTANCE_KEY.pack(b"G", app, number)


def schemas_prefix(app: AppId) -> bytes:
    """The prefix of the schemas of an app's rows, which are deleted with the app."""
    return _APP.pack(b"D", app)


def schema_key(app: AppId, identity: int) -> bytes:
    """The key of one schema of an app's rows."""
    return schemas_prefix(app) + identity.to_bytes(8, "big")


def state_prefix(app: AppId, operator: int) -> bytes:
    """The prefix of an operator's keyed state."""
    return INSTANCE_KEY.pack(b"S", app, operator)


def times_key(instance: InstanceId) -> bytes:
    """The key of an instance's event times."""
    return INSTANCE_KEY.pack(b"T", instance.app, instance.number)


def received_prefix(instance: InstanceId) -> bytes:
    """The prefix of what an instance has received from other stores."""
    return INSTANCE_KEY.pack(b"I", instance.app, instance.number)


def received_key(instance: InstanceId, origin: bytes) -> bytes:
    """The key of what an instance has received from one other store."""
    return received_prefix(instance) + origin


def handed_on_key(instance: InstanceId) -> bytes:
    """The key of the number of rows that other nodes have acknowledged."""
    return INSTANCE_KEY.pack(b"O", instance.app, instance.number)


def numbered_key(app: AppId) -> bytes:
    """The key of the app number under which its queues got their name, if it is another's."""
    return _APP.pack(b"B", app)


def lot_key(instance: InstanceId) -> bytes:
    """The key of the lot under which an instance runs here, or did last."""
    return INSTANCE_KEY.pack(b"L", instance.app, instance.number)


def given_key(instance: InstanceId) -> bytes:
    """The key of the node to which an instance that ran here was given."""
    return INSTANCE_KEY.pack(b"N", instance.app, instance.number)


def cut_key(instance: InstanceId) -> bytes:
    """Where it lies since which loss of a host rows for an instance are sent from here, or taken."""
    return INSTANCE_KEY.pack(b"K", instance.app, instance.number)


def doubt_key(instance: InstanceId) -> bytes:
    """Where it lies whom rows in doubt wait for, which have a queue of their own."""
    return INSTANCE_KEY.pack(b"W", instance.app, instance.number)


def doubts_prefix(app: AppId) -> bytes:
    """Where it lies whom the rows in doubt of an app wait for."""
    return _APP.pack(b"W", app)


def key_number(key: bytes) -> int:
    """Return the number of the instance of which something lies at this key."""
    return int(INSTANCE_KEY.unpack(key)[2])


def lots_prefix(app: AppId) -> bytes:
    """The prefix of the lots of an app's instances."""
    return _APP.pack(b"L", app)


def shapes_key(instance: InstanceId) -> bytes:
    """Where it lies what columns have come to a queue behind a union."""
    return INSTANCE_KEY.pack(b"U", instance.app, instance.number)


def app_prefixes(app: AppId) -> tuple[bytes, ...]:
    """All prefixes of an app."""
    return tuple(
        _APP.pack(letter, app)
        for letter in (b"M", b"Q", b"C", b"P", b"G", b"S", b"T", b"I", b"O", b"L", b"N", b"B", b"D", b"U", b"K", b"W")
    )
