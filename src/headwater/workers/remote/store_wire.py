"""The protocol between a remote worker and the node about the store, on the same connection as turns.

A worker on the node's own machine has the store open and needs none of this. Elsewhere it asks for what it touches:
`OpenSnapshot` and `CloseSnapshot` are not answered, so they travel with the next question; every other question is
answered before the next one is asked. Messages can be as long as rows, so they are cut into pieces. Bytes from the
network are never executed: all of it is typed, and what exceeds a type or a limit ends the connection.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headwater.model.frames import BrokenFrame, pieces_of
from headwater.workers.local.wire import Done, Goodbye, NodeAlive, Turn

MESSAGE_BYTES_MAX: Final = 256 << 20  # a turn takes 16 MB, and its output is rarely ten times as much
KNOCK_BYTES_MAX: Final = 4 << 10  # of the first message, before authentication
ANSWER_BYTES: Final = 1 << 20  # about; one value may be longer
KEYS_MAX: Final = 4_096  # in one question
_PIECE_BYTES: Final = 1 << 20


class Knock(msgspec.Struct, array_like=True, tag="knock", frozen=True):
    """The hello of a remote worker, with the token that proves that this node has hired it."""

    token: bytes
    pid: int
    epoch: int
    spare: bool


class OpenSnapshot(msgspec.Struct, array_like=True, tag="look", frozen=True):
    """Opens a snapshot under this number."""

    snapshot: int


class CloseSnapshot(msgspec.Struct, array_like=True, tag="away", frozen=True):
    """Closes a snapshot."""

    snapshot: int


class Fetch(msgspec.Struct, array_like=True, tag="fetch", frozen=True):
    """Asks for the values of keys; the answer may have only the first of them, if all would be too much."""

    snapshot: int
    keys: Sequence[bytes]


class Walk(msgspec.Struct, array_like=True, tag="walk", frozen=True):
    """Asks for the keys with a prefix and their values in order, from `start` on, about `bytes_max` of them."""

    snapshot: int
    prefix: bytes
    start: bytes
    bytes_max: int


class Walked(msgspec.Struct, array_like=True, frozen=True):
    """What a scan has read: all keys of a prefix from `start` to `last`, both included, or to its end."""

    prefix: bytes
    start: bytes
    last: bytes | None
    digest: bytes


class Commit(msgspec.Struct, array_like=True, tag="commit", frozen=True):
    """Asks to commit writes if all reads are unchanged; None is a key that is absent, or to be deleted."""

    reads: Sequence[tuple[bytes, bytes | None]]  # keys and the digests of their values
    walks: Sequence[Walked]
    writes: Sequence[tuple[bytes, bytes | None]]


class HoldCommits(msgspec.Struct, array_like=True, tag="hold", frozen=True):
    """Asks the node to hold its write lock until this worker has committed, after several conflicts."""


class Release(msgspec.Struct, array_like=True, tag="release", frozen=True):
    """Releases the write lock without a commit."""


class Values(msgspec.Struct, array_like=True, tag="values", frozen=True):
    """The values of the keys asked for, or of the first of them."""

    values: list[bytes | None]


class Page(msgspec.Struct, array_like=True, tag="page", frozen=True):
    """Keys and values in order; whether there are more."""

    entries: list[tuple[bytes, bytes]]
    more: bool


class Along(msgspec.Struct, array_like=True, tag="along", frozen=True):
    """What the turn that follows will read: keys and values at the time it was given."""

    values: list[tuple[bytes, bytes | None]]


class CommitsHeld(msgspec.Struct, array_like=True, tag="held", frozen=True):
    """The node holds its write lock for this worker."""


class Released(msgspec.Struct, array_like=True, tag="released", frozen=True):
    """The write lock is released."""


class Committed(msgspec.Struct, array_like=True, tag="committed", frozen=True):
    """The writes are committed."""


class Conflicted(msgspec.Struct, array_like=True, tag="conflicted", frozen=True):
    """A read has changed, so nothing was written."""


class StoreRefused(msgspec.Struct, array_like=True, tag="refused", frozen=True):
    """The store could not write, and nothing was changed."""

    full: bool  # for want of room
    message: str


Reading = OpenSnapshot | CloseSnapshot | Fetch | Walk
Writing = Commit | HoldCommits | Release
FromRemote = Knock | Done | Reading | Writing
Answer = Values | Page | CommitsHeld | Released | Committed | Conflicted | StoreRefused
ToRemote = Turn | Along | NodeAlive | Goodbye | Answer

_ENCODER: Final = msgspec.msgpack.Encoder()
from_remote: Final = msgspec.msgpack.Decoder(FromRemote)
to_remote: Final = msgspec.msgpack.Decoder(ToRemote)


def framed(message: FromRemote | ToRemote) -> bytes:
    """Return the message in pieces, as it travels."""
    encoded = _ENCODER.encode(message)
    if len(encoded) > MESSAGE_BYTES_MAX:
        raise BrokenFrame(f"a message of {len(encoded) >> 20} MiB; at most {MESSAGE_BYTES_MAX >> 20} are allowed")
    return b"".join(pieces_of(encoded, _PIECE_BYTES))


def digest(value: bytes) -> bytes:
    """Return the digest by which a value is checked at the commit."""
    return hashlib.blake2b(value, digest_size=16).digest()


def digest_all(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the digest of keys and values in order."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in (part for entry in entries for part in entry):
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()
