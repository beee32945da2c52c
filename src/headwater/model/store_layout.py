"""The names of all that a node's store holds.

Keys begin with a letter that says what lies there, then the app's number, so that an app is a few contiguous ranges
and can be removed as such. What belongs to no app, or outlives it, begins with an exclamation mark.
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
NAME_KEY: Final = b"!name"  # by which other stores know this one
LAST_APP_KEY: Final = b"!apps"  # the largest number that an app was given
DRAINING_KEY: Final = b"!draining"  # the node leaves for good
FLOW_PREFIX: Final = b"!flow/"  # flows of which something is here, by app
OWNED_PREFIX: Final = b"!owned/"  # apps that were submitted to the node
DISOWNED_PREFIX: Final = b"!disowned/"  # placements that the node said it does not have, and must never run
RUBBISH_PREFIX: Final = b"!rubbish/"  # what is to be deleted, a little at a time


def app_record_key(name: str) -> bytes:
    """Where the app of this name is registered."""
    return b"A" + name.encode()


def queue_key(instance: InstanceId) -> bytes:
    """Where the record of a queue lies."""
    return INSTANCE_KEY.pack(b"M", instance.app, instance.number)


def queues_prefix(app: AppId) -> bytes:
    """Where the records of all queues of an app lie."""
    return _APP.pack(b"M", app)


def entries_prefix(instance: InstanceId) -> bytes:
    """Where the entries of a queue lie."""
    return INSTANCE_KEY.pack(b"Q", instance.app, instance.number)


def entry_key(instance: InstanceId, sequence: int) -> bytes:
    """Where one entry of a queue lies."""
    return _ENTRY.pack(b"Q", instance.app, instance.number, sequence)


def entry_sequence(key: bytes) -> int:
    """Return the number of the entry that lies at this key."""
    return int(_ENTRY.unpack(key)[3])


def counts_key(instance: InstanceId) -> bytes:
    """Where the row counts of an instance lie."""
    return INSTANCE_KEY.pack(b"C", instance.app, instance.number)


def position_key(app: AppId, number: int) -> bytes:
    """Where the position of a source or sink lies, by its place among the declarations."""
    return INSTANCE_KEY.pack(b"P", app, number)


def code_prefix(app: AppId) -> bytes:
    """Where the code of an app lies."""
    return _APP.pack(b"G", app)


def code_key(app: AppId, number: int) -> bytes:
    """Where one piece of code lies; a node never uses a number twice, so that code can be remembered by it."""
    return INSTANCE_KEY.pack(b"G", app, number)


def schemas_prefix(app: AppId) -> bytes:
    """Where the schemas of an app's rows lie: they go with the app."""
    return _APP.pack(b"D", app)


def schema_key(app: AppId, identity: int) -> bytes:
    """Where one schema of an app's rows lies."""
    return schemas_prefix(app) + identity.to_bytes(8, "big")


def state_prefix(app: AppId, operator: int) -> bytes:
    """Where the keyed state of an operator lies."""
    return INSTANCE_KEY.pack(b"S", app, operator)


def times_key(instance: InstanceId) -> bytes:
    """Where it lies how far event time has come for an instance."""
    return INSTANCE_KEY.pack(b"T", instance.app, instance.number)


def received_prefix(instance: InstanceId) -> bytes:
    """Where it lies what other nodes have sent to an instance."""
    return INSTANCE_KEY.pack(b"I", instance.app, instance.number)


def received_key(instance: InstanceId, origin: bytes) -> bytes:
    """Where it lies what one other store has sent to an instance."""
    return received_prefix(instance) + origin


def handed_on_key(instance: InstanceId) -> bytes:
    """Where it lies how many rows of an instance have gone to other nodes."""
    return INSTANCE_KEY.pack(b"O", instance.app, instance.number)


def numbered_key(app: AppId) -> bytes:
    """Where it lies under which number of an app the entries of its queues began to be numbered, if another's."""
    return _APP.pack(b"B", app)


def lot_key(instance: InstanceId) -> bytes:
    """Where it lies under which lot an instance runs here, or did last."""
    return INSTANCE_KEY.pack(b"L", instance.app, instance.number)


def given_key(instance: InstanceId) -> bytes:
    """Where it lies to whom an instance was given that ran here."""
    return INSTANCE_KEY.pack(b"N", instance.app, instance.number)


def lots_prefix(app: AppId) -> bytes:
    """Where it lies under which lots instances of an app run here."""
    return _APP.pack(b"L", app)


def lot_instance(key: bytes) -> int:
    """Return the number of the instance whose lot lies at this key."""
    return int(INSTANCE_KEY.unpack(key)[2])


def app_prefixes(app: AppId) -> tuple[bytes, ...]:
    """Every range in which something of an app may lie."""
    return tuple(
        _APP.pack(letter, app)
        for letter in (b"M", b"Q", b"C", b"P", b"G", b"S", b"T", b"I", b"O", b"L", b"N", b"B", b"D")
    )
