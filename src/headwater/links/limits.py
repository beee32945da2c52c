"""Every limit of a node's port and links in one place, each with its reason.

Whatever its peers do, a node's memory for them stays below `arriving_bytes + unread_bytes + queue_bytes_all`, two
messages, and at most 400 KB for each connection, including what waits for its turn (`intake.py`). `shares.py` decides
which connection is cut when a budget is full, `rates.py` how often a node may send what.
"""

from dataclasses import dataclass, fields
from typing import Final

from headwater.control.messages.app_messages import FLOW_BYTES_MAX
from headwater.model.errors import ConfigError

NAME_CHARS_MAX: Final = 100  # in a greeting; those of peers are in model/peers.py
GREETING_BYTES_MAX: Final = 1 << 10  # an id, a name, a version
REFUSAL_CHARS_MAX: Final = 1_000  # of each part of a refusal
PARTS: Final = {  # limits that are parts of another
    "arriving_bytes_of_others": "arriving_bytes",
    "connections_of_others": "connections",
    "connections_of_one": "connections",
    "strangers_per_address": "strangers",
    "requests_of_one": "requests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """What peers may do to a node, and what it does to them."""

    message_bytes: int = 16 * FLOW_BYTES_MAX  # entries of a register with their flows, or rows
    request_bytes: int = 16 * FLOW_BYTES_MAX  # of a user; too large a flow is refused with a reason
    answer_bytes: int = 8 << 20
    arriving_bytes: int = 64 << 20  # of unfinished messages, over all connections
    arriving_bytes_of_others: int = 32 << 20  # of that, for all but nodes, which have the other half
    unread_bytes: int = 32 << 20  # of answers that users have not read yet, over all connections

    connections: int = 512  # a leaf set, a table and the trees of a large ring are about 200 nodes
    connections_of_others: int = 256  # of these, for users, so that as many are left for nodes
    connections_of_one: int = 64  # node or user: a service that asks from many machines with one certificate has 64
    strangers: int = 64  # at a time, until TLS and greeting are done; each takes a handshake's 2 ms of a core
    strangers_per_address: int = 32  # so that one address cannot take all places, not even until others need them
    arrivals_per_s: int = 100  # handshakes: a flood of them takes a fifth of a core at most

    handshake_s: float = 10.0  # from accepting to greeting: several round trips over a bad link
    idle_s: float = 300.0  # without data; the connecting node closes after `unused_s`, well before
    frame_s: float = 10.0  # to complete a message that has begun, extended at `frame_bytes_per_s`
    frame_bytes_per_s: int = 8 << 10  # the slowest link that is worth waiting for

    requests_at_once: int = 8  # of one connection
    requests: int = 256  # in progress, over all connections: each may hold its request and its answer
    requests_of_one: int = 32  # node or user: at 5 ms of the loop each, others wait 0.2 s for them
    request_s: float = 60.0  # until a request is answered

    queue_bytes: int = 32 << 20  # that wait for one destination; a message must fit
    queue_messages: int = 10_000
    queue_bytes_all: int = 128 << 20
    destinations: int = 1_024  # with a queue or a connection
    stale_s: float = 3.0  # a message that could not be sent for so long is dropped: the protocols retransmit
    unused_s: float = 60.0  # then a connection is closed
    dial_s: float = 10.0
    redial_min_s: float = 0.1  # backoff after a failure, doubled with each further one
    redial_max_s: float = 5.0

    # zstd takes at least 25 µs, and leaves a third of the bytes of Arrow batches of 10 KB and more: below 4 KB that is
    # no gain even at 100 Mbit/s, above it is one up to 1 Gbit/s (250 to 420 MB/s on one core).
    compress_bytes: int = 4 << 10
    refusals_logged: int = 10  # in ten seconds; the others are counted
    refused_per_s: int = 5_000  # messages of one node that are over its rates: reading and dropping them takes 5 % of
    # a core; a node that sends more is read more slowly

    def __post_init__(self) -> None:
        """Refuse limits that contradict one another."""
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise ConfigError(f"{each.name} must be above 0, not {getattr(self, each.name)}")
        if self.queue_bytes < self.message_bytes:
            raise ConfigError(f"a queue of {self.queue_bytes} bytes does not hold a message of {self.message_bytes}")
        for part, whole in PARTS.items():
            if getattr(self, part) > getattr(self, whole):
                raise ConfigError(f"{part} ({getattr(self, part)}) is a part of {whole} ({getattr(self, whole)})")
        if self.unused_s >= self.idle_s:
            raise ConfigError(
                f"unused_s ({self.unused_s}) must be below idle_s ({self.idle_s}), or links are cut in use"
            )
