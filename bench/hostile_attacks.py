"""What is done to the nodes of the hostile benchmark, by strangers, a user with the lowest role, and a certified node.

Each attack goes on for a stretch of time, says no more than so much, speaks to loopback addresses only, and returns
what it has done. They live in a process of their own, so that what they cost is not taken from those who are measured.
"""

import asyncio
import itertools
import os
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.client.requests import ListNodes
from headwater.control.messages import app_messages as m
from headwater.control.messages.row_messages import RowsSent, Sending, schema_name
from headwater.links.credentials import Certified, is_loopback, load_credentials
from headwater.links.speech import Asked, packed
from headwater.model.batch import encode_batch, encode_entry, schema_id
from headwater.model.frames import pieces_of
from headwater.model.peers import NodeId, Peer, key_of
from headwater.overlay.messages import Heartbeat
from headwater.spark.address import host_and_port

PIECE_BYTES: Final = 1 << 20
USERS_CONNECTIONS: Final = 510
USERS_MESSAGE_BYTES: Final = 13 << 20  # of 16 MB that a message may have: five of them hold 64 MB
UNFINISHED: Final = 5
STRANGERS: Final = 66
STRANGERS_FROM: Final = ("127.0.0.2", "127.0.0.3")
HANDSHAKES: Final = 20_000
REQUESTS: Final = 20_000
COPIES: Final = 5_600
PATHS: Final = 72_200
BEATS: Final = 589_400
SCHEMAS: Final = 30
ORIGINS: Final = 20_000
NULLS: Final = 200
NULL_ROWS: Final = 2_000_000_000
FRAMES: Final = 20  # to each port of Spark's
AT_ONCE: Final = 100  # messages that are written together

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Done = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Victim:
    """A node, and what an attacker knows of it."""

    address: str
    app: str  # an app that runs there
    instances: tuple[int, ...]  # of it, that are there
    ports: tuple[int, ...]  # of its Spark


@dataclass(frozen=True, slots=True)
class Means:
    """What an attacker has."""

    user: Path
    node: Path


class Attackers:
    """All attacks, by name."""

    def __init__(self, means: Means) -> None:
        """Have a user's certificate, and a node's."""
        self._user, self._node = load_credentials(means.user), load_credentials(means.node)

    def close(self) -> None:
        """End; every attack has by now."""

    def attack(self, name: str, victim: Victim, seconds: float) -> Done:
        """Attack a node for so long, and return what was done."""
        place = host_and_port(victim.address)
        assert place is not None
        assert is_loopback(place[0]), "nobody but ourselves is attacked"
        return asyncio.run(self._in_time(ATTACKS[name], _Attack(self._user, self._node, victim, *place, seconds)))

    async def _in_time(self, attack: "Callable[[_Attack], Awaitable[Done]]", on: "_Attack") -> Done:
        began = time.monotonic()
        try:
            async with asyncio.timeout(on.seconds):
                await attack(on)
        except TimeoutError:
            on.done["ended"] = "its time was up"
        except (OSError, asyncio.IncompleteReadError) as failure:
            on.done["ended"] = f"{type(failure).__name__}: the node hung up"
        await asyncio.sleep(max(0.0, began + on.seconds - time.monotonic()))
        return on.done


class _Attack:
    """One attack while it goes on."""

    def __init__(self, user: Certified, node: Certified, victim: Victim, host: str, port: int, seconds: float) -> None:
        """Begin with nothing done."""
        self.user, self.node, self.victim = user, node, victim
        self.host, self.port, self.seconds = host, port, seconds
        self.done: Done = {}
        self.peer = Peer(node.identity.id, "127.0.0.1:9", "nowhere")

    def count(self, what: str, number: int = 1) -> None:
        """Take note of something that was done."""
        self.done[what] = self.done.get(what, 0) + number

    async def connect(self, context: ssl.SSLContext | None, since: str = "127.0.0.1") -> Streams:
        """Connect as somebody, from one of this machine's addresses."""
        named = None if context is None else self.host
        return await asyncio.open_connection(
            self.host, self.port, ssl=context, server_hostname=named, local_addr=(since, 0)
        )

    @asynccontextmanager
    async def speaking(self, as_whom: Certified, kind: Any) -> AsyncIterator[Streams]:
        """A connection on which we have greeted."""
        reader, writer = await self.connect(as_whom.dialling())
        try:
            writer.write(_framed(as_whom.greeting(kind)))
            yield reader, writer
        finally:
            writer.transport.abort()

    async def flood(self, what: str, messages: Iterator[Any]) -> None:
        """Say all of this as a node, as fast as it is taken."""
        async with self.speaking(self.node, "node") as (_, writer):
            while some := b"".join(_framed(message) for message in itertools.islice(messages, AT_ONCE)):
                writer.write(some)
                await writer.drain()
                self.count(what, AT_ONCE)
                await asyncio.sleep(0)


def _framed(message: Any) -> bytes:
    return b"".join(pieces_of(packed(message, None), PIECE_BYTES))


# --- of a user with the lowest role -----------------------------------------------------------------------------------


async def unfinished_messages(on: _Attack) -> None:
    """Five messages of 13 MB that do not end, and go on just fast enough."""
    async with AsyncExitStack() as stack:
        writers = []
        for _ in range(UNFINISHED):
            _, writer = await stack.enter_async_context(on.speaking(on.user, "user"))
            writers.append(writer)
            writer.write(
                b"".join(pieces_of(bytes(USERS_MESSAGE_BYTES + PIECE_BYTES), PIECE_BYTES))[:USERS_MESSAGE_BYTES]
            )
            on.count("messages begun")
        while True:
            for writer in writers:
                if not writer.is_closing():
                    writer.write(bytes(10_000))
                    on.count("bytes added", 10_000)
            await asyncio.sleep(1.0)


async def idle_connections(on: _Attack) -> None:
    """Connections that greet and say nothing more."""
    async with AsyncExitStack() as stack:
        for _ in range(USERS_CONNECTIONS):
            with suppress(OSError):
                await stack.enter_async_context(on.speaking(on.user, "user"))
                on.count("connections")
        await asyncio.sleep(on.seconds)


async def requests_without_pause(on: _Attack) -> None:
    """Eight requests at a time on each of many connections, each of which asks all nodes."""
    request = b"".join(_framed(Asked(number, msgspec.Raw(msgspec.msgpack.encode(ListNodes())))) for number in range(8))

    async def ask() -> None:
        async with on.speaking(on.user, "user") as (reader, writer):
            while on.done.get("requests", 0) < REQUESTS:
                writer.write(request)
                on.count("requests", 8)
                if not await reader.read(1 << 16):
                    return

    await asyncio.gather(*(ask() for _ in range(32)), return_exceptions=True)


# --- of strangers -----------------------------------------------------------------------------------------------------


async def silent_strangers(on: _Attack) -> None:
    """Connections from two addresses that say nothing, each made anew when it was ended."""

    async def be_silent(since: str) -> None:
        while on.done.get("connections", 0) < HANDSHAKES:
            with suppress(OSError):
                reader, writer = await on.connect(None, since)
                on.count("connections")
                await reader.read()
                writer.transport.abort()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(be_silent(STRANGERS_FROM[number % 2]) for number in range(STRANGERS)))


async def handshakes_without_pause(on: _Attack) -> None:
    """Connections with TLS, without a certificate, one after the other from two addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def shake(since: str) -> None:
        while on.done.get("handshakes", 0) < HANDSHAKES:
            on.count("handshakes")
            with suppress(OSError):
                _, writer = await on.connect(context, since)
                writer.transport.abort()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(shake(STRANGERS_FROM[number % 2]) for number in range(8)))


# --- of a certified node ----------------------------------------------------------------------------------------------


def _made_up(number: int) -> Peer:
    return Peer(NodeId(number.to_bytes(16, "big")), f"127.0.0.1:{number % 60_000 + 1}", "nowhere")


async def copies_of_registers(on: _Attack) -> None:
    """Entries of stewards that there are not, to be kept in case they are lost."""

    def messages() -> Iterator[Any]:
        for number in range(COPIES):
            chain = m.ChainSpec("chain", 1, 0, ())
            spec = m.AppSpec(f"made-up-{number}", key_of(f"made-up-{number}"), (on.peer,), (chain,))
            entry = m.RegisterEntry(spec, 1, 1, "placing", (), on.peer)
            yield m.ReplicaSent(on.peer, _made_up(number + 1), (entry,))

    await on.flood("messages", messages())


async def paths_of_trees(on: _Attack) -> None:
    """Wants the way to the roots of trees that there are not."""
    await on.flood(
        "messages",
        (m.PathAsked(on.peer, f"made-up-{number}", key_of(f"made-up-{number}"), 1, 0) for number in range(PATHS)),
    )


async def heartbeats(on: _Attack) -> None:
    """Says that it is there."""
    await on.flood("messages", itertools.repeat(Heartbeat(on.peer), BEATS))


def _stretch(on: _Attack, number: int, schemas: Any, entry: bytes = b"", origin: bytes = b"") -> RowsSent:
    app, instances = on.victim.app, on.victim.instances or (0,)
    entries = ((number, entry),) if entry else ()
    instance = instances[number % len(instances)]
    sending = Sending(app, key_of(app), instance, origin or bytes(16), number, number, number + 1, entries, schemas)
    return RowsSent(on.peer, on.peer, None, 0, sending)


async def schemas_of_rows_not_taken(on: _Attack) -> None:
    """Stretches that nobody takes, each with megabytes of schemas."""

    def messages() -> Iterator[Any]:
        for number in range(SCHEMAS):
            texts = [
                pa.schema([(f"{number}-{one}-" + "x" * 100_000, pa.int64())]).serialize().to_pybytes()
                for one in range(90)
            ]
            named = tuple((os.urandom(8), text) for text in texts)
            yield _stretch(on, number + 1_000_000, named)

    await on.flood("messages", messages())


async def origins_made_up(on: _Attack) -> None:
    """Rows of stores that there are not, such as the app's own: a node in wrong hands can invent some."""
    batch = pa.record_batch({"n": pa.array([1]), "sensor": pa.array([9])})
    entry = encode_entry(schema_id(batch.schema), 1, 1, (), encode_batch(batch, whole=False))
    schemas = ((schema_name(schema_id(batch.schema)), batch.schema.serialize().to_pybytes()),)
    await on.flood("messages", (_stretch(on, 0, schemas, entry, os.urandom(16)) for _ in range(ORIGINS)))


async def rows_of_nothing(on: _Attack) -> None:
    """Two thousand million rows of nulls in some four hundred bytes."""
    batch = pa.record_batch({"n": pa.nulls(NULL_ROWS)})
    entry = encode_entry(schema_id(batch.schema), 1, NULL_ROWS, (), encode_batch(batch, whole=False))
    schemas = ((schema_name(schema_id(batch.schema)), batch.schema.serialize().to_pybytes()),)
    await on.flood("messages", (_stretch(on, 0, schemas, entry, os.urandom(16)) for _ in range(NULLS)))


# --- of another user of the machine -----------------------------------------------------------------------------------

JAVA_CLASS: Final = "hostile.made.up.Name"


def _rpc_frame(port: int) -> bytes:
    """A request of Spark's RPC with a Java object of a made-up class: a port that reads it names it in its answer."""

    def text(word: str) -> bytes:
        return struct.pack(">H", len(word)) + word.encode()

    java = b"\xac\xed\x00\x05sr" + text(JAVA_CLASS) + bytes(8) + b"\x02\x00\x00xp"
    body = b"\x00" + b"\x01" + text("127.0.0.1") + struct.pack(">I", port) + text("endpoint-verifier") + java
    return struct.pack(">qBqi", 8 + 1 + 8 + 4 + len(body), 3, 1, len(body)) + body


async def java_objects(on: _Attack) -> None:
    """Frames of Spark's RPC to every port on which the node's JVM listens."""
    on.done["ports"], on.done["objects read"] = len(on.victim.ports), 0
    for port in on.victim.ports:
        for _ in range(FRAMES):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(_rpc_frame(port))
                on.count("frames")
                with suppress(TimeoutError):
                    told = await asyncio.wait_for(reader.read(1 << 16), 0.2)
                    on.count("objects read", int(JAVA_CLASS.encode() in told))
                writer.transport.abort()


ATTACKS: Final[dict[str, Callable[[_Attack], Awaitable[Any]]]] = {
    "java objects": java_objects,
    "unfinished messages": unfinished_messages,
    "idle connections": idle_connections,
    "requests without pause": requests_without_pause,
    "silent strangers": silent_strangers,
    "handshakes without pause": handshakes_without_pause,
    "copies of registers": copies_of_registers,
    "paths of trees": paths_of_trees,
    "heartbeats": heartbeats,
    "schemas of rows not taken": schemas_of_rows_not_taken,
    "origins made up": origins_made_up,
    "rows of nothing": rows_of_nothing,
}
