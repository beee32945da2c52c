"""Peers of the ring, and the arithmetic of their ids.

A NodeId is 16 bytes, read as a number of 128 bits on a ring, and as 32 digits of base 16 for routing. Bytes compare as
the numbers do, are hashed once, and fit the wire; only distances need the number itself.
"""

from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, NewType

from msgspec import Meta

ID_BYTES: Final = 16
ADDRESS_CHARS_MAX: Final = 262  # the longest host name, a colon and a port
ZONE_CHARS_MAX: Final = 100

NodeId = NewType("NodeId", Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)])

RING: Final = 1 << 8 * ID_BYTES
DIGITS: Final = 2 * ID_BYTES  # of base 16: Pastry's b = 4
BASE: Final = 16

OPERATORS_PER_PEER: Final = 8  # on a small machine; a larger one counts as several
PEERS_OF_A_MACHINE_MAX: Final = 8  # more would fall together with it than keep copies of one another's registers


class Peer(NamedTuple):
    """One place on the ring, with the address of its node."""

    id: NodeId
    address: Annotated[str, Meta(max_length=ADDRESS_CHARS_MAX)]
    zone: Annotated[str, Meta(max_length=ZONE_CHARS_MAX)]

    def __str__(self) -> str:
        """Return the short form used in logs: the first digits of the id and the address."""
        return f"{self.id[:4].hex()}@{self.address}"


def peer_capacities(capacity: int) -> tuple[int, ...]:
    """Return the capacity of each peer of a machine, which has one per `OPERATORS_PER_PEER` operators."""
    count = min(max(1, capacity // OPERATORS_PER_PEER), PEERS_OF_A_MACHINE_MAX)
    return capacities_among(count, capacity)


def capacities_among(peers: int, capacity: int) -> tuple[int, ...]:
    """Divide a machine's capacity among its peers, as evenly as possible, the first ones more."""
    part, more = divmod(capacity, peers)
    return tuple(part + (number < more) for number in range(peers))


def key_of(name: str) -> NodeId:
    """Return the ring key of a name: an app's, or that of a steward's register."""
    return NodeId(blake2b(name.encode(), digest_size=ID_BYTES).digest())


def number_of(identity: NodeId) -> int:
    """Return an id as a number."""
    return int.from_bytes(identity, "big")


def id_of(number: int) -> NodeId:
    """Return the id of a number, modulo the ring."""
    return NodeId((number % RING).to_bytes(ID_BYTES, "big"))


def clockwise(start: NodeId, end: NodeId) -> int:
    """Return the distance from one id to another in the direction of growing numbers."""
    return (int.from_bytes(end, "big") - int.from_bytes(start, "big")) % RING


def distance(one: NodeId, other: NodeId) -> int:
    """Return the shorter distance between two ids."""
    way = clockwise(one, other)
    return min(way, RING - way)


def digit(identity: NodeId, place: int) -> int:
    """Return one of the 32 digits, the most significant first."""
    byte = identity[place >> 1]
    return byte & 15 if place & 1 else byte >> 4


def shared_digits(one: NodeId, other: NodeId) -> int:
    """Return the length of the common prefix of two ids, in digits."""
    differing = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return DIGITS - (differing.bit_length() + 3) // 4


def nearer(key: NodeId, one: NodeId, other: NodeId) -> bool:
    """Whether the first of two ids is nearer to a key; of two equally near ones, the smaller is."""
    first, second = distance(key, one), distance(key, other)
    return first < second or (first == second and one < other)
