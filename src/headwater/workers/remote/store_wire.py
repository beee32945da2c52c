"""What a worker elsewhere and the node say about the store, on the connection on which turns are given.

A worker on the node's own machine has the store open and needs none of this. Elsewhere it asks for what it touches:
`OpenSnapshot` and `CloseSnapshot` open and close a snapshot and are not answered, so they travel with the next
question; every other question is answered before the next one is asked. Messages are as long as rows are, so they are
cut into pieces. Bytes from the network never execute: all of it is typed, and what does not fit a type or a limit ends
the connection.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headwater.model.frames import BrokenFrame, pieces_of
from headwater.workers.local.wire import Done, Goodbye, NodeAlive, Turn

MESSAGE_BYTES_MAX: Final = 256 << 20  # a turn takes 16 MB; what comes of it is rarely ten times as much
KNOCK_BYTES_MAX: Final = 4 << 10  # of a stranger's first message
ANSWER_BYTES: Final = 1 << 20  # about; one value may be longer
KEYS_MAX: Final = 4_096  # in one question
_PIECE_BYTES: Final = 1 << 20


class Knock(msgspec.Struct, array_like=True, tag="knock", frozen=True):
    """A worker begins: the hello of one that came over the network and has to show that it was sent for."""

    token: bytes
    pid: int
    epoch: int
    spare: bool


class OpenSnapshot(msgspec.Struct, array_like=True, tag="look", frozen=True):
    """Open a snapshot and call it by this number."""

    snapshot: int


class CloseSnapshot(msgspec.Struct, array_like=True, tag="away", frozen=True):
    """Close a snapshot."""

    snapshot: int


class Fetch(msgspec.Struct, array_like=True, tag="fetch", frozen=True):
    """Ask for the values of these keys; answered with those of the first few if all would be too much."""

    snapshot: int
    keys: Sequence[bytes]


class Walk(msgspec.Struct, array_like=True, tag="walk", frozen=True):
    """Ask for keys with this prefix and their values in order, from `start` on, about so many bytes of them."""

    snapshot: int
    prefix: bytes
    start: bytes
    bytes_max: int


class Walked(msgspec.Struct, array_like=True, frozen=True):
    """What a walk has seen: all keys of a prefix from `start` up to and with `last`, or to the end of the prefix."""

    prefix: bytes
    start: bytes
    last: bytes | None
    digest: bytes


class Commit(msgspec.Struct, array_like=True, tag="commit", frozen=True):
    """Make these changes if what was read still holds; a value of None is a key that was or shall be absent."""

    reads: Sequence[tuple[bytes, bytes | None]]  # keys and the digests of their values
    walks: Sequence[Walked]
    writes: Sequence[tuple[bytes, bytes | None]]


class HoldCommits(msgspec.Struct, array_like=True, tag="hold", frozen=True):
    """Hold back all others until we have committed, for a moment: optimism has failed several times in a row."""


class Release(msgspec.Struct, array_like=True, tag="release", frozen=True):
    """Hold back nobody any longer, there is nothing to commit."""


class Values(msgspec.Struct, array_like=True, tag="values", frozen=True):
    """The values of the keys asked for, or of the first of them."""

    values: list[bytes | None]


class Page(msgspec.Struct, array_like=True, tag="page", frozen=True):
    """Keys and values in order; whether there are more."""

    entries: list[tuple[bytes, bytes]]
    more: bool


class Along(msgspec.Struct, array_like=True, tag="along", frozen=True):
    """What the turn that follows takes: keys and values as they were when it was given."""

    values: list[tuple[bytes, bytes | None]]


class CommitsHeld(msgspec.Struct, array_like=True, tag="held", frozen=True):
    """Nobody else commits now."""


class Released(msgspec.Struct, array_like=True, tag="released", frozen=True):
    """Others may commit again."""


class Committed(msgspec.Struct, array_like=True, tag="committed", frozen=True):
    """The changes are made."""


class Conflicted(msgspec.Struct, array_like=True, tag="conflicted", frozen=True):
    """Something that was read has changed, so nothing was."""


class StoreRefused(msgspec.Struct, array_like=True, tag="refused", frozen=True):
    """The store could not do it and changed nothing."""

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
    """Return the message as it travels."""
    encoded = _ENCODER.encode(message)
    if len(encoded) > MESSAGE_BYTES_MAX:
        raise BrokenFrame(f"a message of {len(encoded) >> 20} MiB; at most {MESSAGE_BYTES_MAX >> 20} are allowed")
    return b"".join(pieces_of(encoded, _PIECE_BYTES))


def digest(value: bytes) -> bytes:
    """Return what stands for a value when it is asked whether it still holds."""
    return hashlib.blake2b(value, digest_size=16).digest()


def digest_all(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return what stands for keys and values in order."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in (part for entry in entries for part in entry):
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()
