"""Whoever does not belong here is refused, counted and told as little as can be; the node goes on working."""

import asyncio
import datetime as dt
import logging
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from headwater.model.peers import Peer
from headwater.overlay.messages import Heartbeat
from headwater.runtime.authority import make_authority, open_authority
from headwater.runtime.frames import Inbox, pieces_of
from headwater.runtime.identity import Role
from headwater.runtime.links.credentials import Credentials, load_credentials
from headwater.runtime.links.incoming import LEAVE_S
from headwater.runtime.links.limits import GREETING_BYTES_MAX, WireLimits
from headwater.runtime.links.outgoing import Drop
from headwater.runtime.links.refusals import Reason, Refusals
from headwater.runtime.links.speech import VERSION, Greeting, Refusal, Welcome, packed, to_dialler, unpacked
from tests.runtime.links.wires import Clock, Cluster, Station, station, told, until, until_at_least


class Guest:
    """Somebody at a node's port, who says what they like."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak over these."""
        self.reader, self.writer = reader, writer

    def say(self, message: object) -> None:
        """Say something in the form of messages."""
        self.write(b"".join(pieces_of(packed(message, None), 1 << 20)))

    def write(self, data: bytes) -> None:
        """Say something in any form."""
        self.writer.write(data)

    async def rest(self) -> list[object]:
        """Return what is said to us until the node hangs up; without TLS's blessing, nothing."""
        try:
            data = await self.reader.read()
        except (ConnectionError, ssl.SSLError):
            data = b""
        return [to_dialler.decode(unpacked(one, 1 << 20)) for one in Inbox(1 << 20).put(data)]


@asynccontextmanager
async def guest(of: Station, context: ssl.SSLContext | None) -> AsyncIterator[Guest]:
    """A connection to a node's port."""
    host, _, port = of.address.rpartition(":")
    named = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=named)
    try:
        yield Guest(reader, writer)
    finally:
        writer.transport.abort()


def refused(of: Station) -> dict[str, int]:
    """What a node has refused so far."""
    return of.wire.status().refused


async def assert_it_works(of: Station, friend: Station) -> None:
    """Another node is still heard."""
    before = len(of.heard)
    friend.ping(of, before)
    await until(lambda: len(of.heard) > before)


# --- certificates -----------------------------------------------------------------------------------------------------


def naked(cluster: Cluster) -> ssl.SSLContext:
    """TLS without a certificate, trusting everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def of_a_foreign_authority(cluster: Cluster) -> ssl.SSLContext:
    """A node's certificate of another cluster."""
    other = make_authority(cluster.directory / f"foreign{os.urandom(4).hex()}")
    context = naked(cluster)
    bundle = other.issue_node("evil", ["127.0.0.1"])
    context.load_cert_chain(bundle / "node.pem", bundle / "node.key")
    return context


def expired(cluster: Cluster) -> ssl.SSLContext:
    """A certificate of our authority that has had its time."""
    return cluster.expired_node().dialling()


def old_tls(cluster: Cluster) -> ssl.SSLContext:
    """A good certificate, and a version of TLS that is too old."""
    context = naked(cluster)
    bundle = cluster.node()
    context.load_cert_chain(bundle / "node.pem", bundle / "node.key")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def signed_by_a_node(cluster: Cluster) -> ssl.SSLContext:
    """A certificate that another node has signed, as if it were an authority."""
    node = cluster.node()
    home = cluster.directory / f"forged{os.urandom(4).hex()}"
    home.mkdir()
    shutil.copy(node / "node.key", home / "ca.key")
    shutil.copy(node / "node.pem", home / "ca.pem")
    forged = open_authority(home).issue_node("evil", ["127.0.0.1"])
    chain = forged / "chain.pem"
    chain.write_bytes((forged / "node.pem").read_bytes() + (node / "node.pem").read_bytes())
    context = naked(cluster)
    context.load_cert_chain(chain, forged / "node.key")
    return context


@pytest.mark.parametrize(
    ("stranger", "reason"),
    [
        (naked, Reason.NO_CERTIFICATE),
        (of_a_foreign_authority, Reason.FOREIGN_CERTIFICATE),
        (expired, Reason.EXPIRED_CERTIFICATE),
        (old_tls, Reason.NO_TLS),
        (signed_by_a_node, Reason.BAD_CERTIFICATE),
    ],
)
def test_a_stranger_is_told_nothing_but_what_tls_tells(
    cluster: Cluster, stranger: Callable[[Cluster], ssl.SSLContext], reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with station(cluster.node_credentials()) as one, station(cluster.node_credentials()) as friend:
            context = stranger(cluster)
            try:
                async with guest(one, context) as evil:
                    evil.say(Greeting(VERSION, "node"))
                    evil.say(Heartbeat(friend.peer))
                    assert await evil.rest() == []
            except (ssl.SSLError, ConnectionError):
                pass  # TLS itself told the stranger
            await until(lambda: refused(one) == {reason: 1})
            await until(lambda: one.wire.status().strangers == 0)
            assert one.heard == []
            await assert_it_works(one, friend)

    told(story())
    assert "refused 127.0.0.1:" in caplog.text
    assert reason.value in caplog.text


def test_plaintext_at_a_port_with_tls_is_refused(cluster: Cluster) -> None:
    async def story() -> None:
        async with station(cluster.node_credentials()) as one, guest(one, None) as evil:
            evil.write(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
            assert not any(isinstance(said, Welcome) for said in await evil.rest())
            await until(lambda: refused(one) == {Reason.NO_TLS: 1})

    told(story())


def test_a_users_certificate_sends_no_messages_of_nodes(cluster: Cluster) -> None:
    """Not even one that may do everything else."""

    async def story() -> None:
        user = cluster.user_credentials(Role.OPERATE)
        async with station(cluster.node_credentials()) as one, guest(one, user.dialling()) as evil:
            evil.say(Greeting(VERSION, "node"))
            evil.say(Heartbeat(Peer(user.identity.id, "127.0.0.1:1", "zone")))
            assert await evil.rest() == [Refusal(Reason.NOT_A_NODE.value, one.address)]
            assert refused(one) == {Reason.NOT_A_NODE: 1}
            assert one.heard == []

    told(story())


def test_a_certificate_of_our_authority_without_a_role_is_nobodys(cluster: Cluster) -> None:
    """Such as the authority's own, whose key is not meant to be here."""

    async def story() -> None:
        context = naked(cluster)
        home = cluster.authority.directory
        context.load_cert_chain(home / "ca.pem", home / "ca.key")
        async with station(cluster.node_credentials()) as one, guest(one, context) as evil:
            evil.say(Greeting(VERSION, "node"))
            assert not any(isinstance(said, Welcome) for said in await evil.rest())
            await until(lambda: refused(one) == {Reason.BAD_CERTIFICATE: 1})

    told(story())


def test_a_message_in_another_nodes_name_is_refused(cluster: Cluster) -> None:
    async def story() -> None:
        credentials = cluster.node_credentials()
        async with station(cluster.node_credentials()) as one, guest(one, credentials.dialling()) as evil:
            evil.say(Greeting(VERSION, "node"))
            evil.say(Heartbeat(Peer(credentials.identity.id, "127.0.0.1:1", "zone")))
            evil.say(Heartbeat(one.peer))
            evil.say(Heartbeat(Peer(credentials.identity.id, "127.0.0.1:1", "zone")))
            said = await evil.rest()
            assert said == [Welcome(VERSION), Refusal(Reason.FORGED_SENDER.value, one.address)]
            assert (len(one.heard), one.senders) == (1, [credentials.identity.id])
            assert refused(one) == {Reason.FORGED_SENDER: 1}

    told(story())


def test_a_denied_node_is_cut_off_at_once_and_not_let_in_again(cluster: Cluster) -> None:
    """The deny list is read again while the node runs."""

    async def story() -> None:
        home = cluster.node()
        lost = cluster.node_credentials()
        async with (
            station(load_credentials(home)) as one,
            station(lost) as other,
            station(cluster.node_credentials()) as friend,
        ):
            other.ping(one, 0)
            await until(lambda: one.pings() == [0] and one.wire.status().nodes == 1)
            (home / "denied").write_text(f"{lost.identity.id.hex()}  # stolen\n")
            assert one.wire.reload()
            await until(lambda: refused(one) == {Reason.DENIED: 1} and one.wire.status().nodes == 0)
            other.ping(one, 1)
            await until(lambda: refused(one) == {Reason.DENIED: 2})
            one.ping(other, 2)  # nor does one speak to it
            await until(lambda: not one.wire.status().connected)
            await assert_it_works(one, friend)
            assert one.pings() == [0, 1]
            assert other.pings() == []

    told(story())


def test_a_connection_ends_when_its_certificate_does(cluster: Cluster) -> None:
    """In both directions; a deny list need not remember what has expired."""

    async def story() -> None:
        clock, today = Clock(), [dt.datetime.now(dt.UTC)]
        brief = cluster.node_credentials(days=2)
        how: dict[str, Any] = {"clock": clock, "calendar": lambda: today[0]}
        async with station(cluster.node_credentials(), **how) as one, station(brief) as other:
            other.ping(one, 0)
            one.ping(other, 0)
            await until(lambda: one.heard and other.heard)
            today[0] += dt.timedelta(days=1)
            clock.advance(11.0)
            one.wire.sweep()
            assert (one.wire.status().nodes, one.wire.status().connected) == (1, 1)
            today[0] += dt.timedelta(days=2)
            clock.advance(11.0)
            one.wire.sweep()
            assert refused(one) == {Reason.EXPIRED_CERTIFICATE: 1}
            assert one.wire.status().connected == 0
            await until(lambda: one.wire.status().nodes == 0)

    told(story())


def test_a_renewed_certificate_is_used_without_a_restart_and_a_damaged_one_is_not(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        clock = Clock()
        home = cluster.node("renewed", days=2)
        async with station(load_credentials(home), clock=clock) as one, station(cluster.node_credentials()) as friend:
            cluster.authority.renew("renewed", days=300)
            clock.advance(11.0)
            one.wire.sweep()
            async with guest(one, friend.wire._credentials.dialling()) as looking:
                shown = looking.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert shown == ssl.PEM_cert_to_DER_cert((home / "node.pem").read_text())
            (home / "node.pem").write_text("nonsense")
            assert not one.wire.reload()
            assert "those before stay in use" in caplog.text
            await assert_it_works(one, friend)

    told(story())


def test_a_node_at_another_address_than_in_its_certificate_is_not_spoken_to(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a stolen key would do to stand in for any node."""

    async def story() -> None:
        elsewhere = cluster.node_credentials(addresses=("10.9.8.7",))
        async with station(cluster.node_credentials()) as one, station(elsewhere) as other:
            one.ping(other, 0)
            await until(lambda: "IP address mismatch" in caplog.text)
            assert other.heard == []

    told(story())


def test_users_cannot_stand_in_for_nodes(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        fake = cluster.user_credentials(Role.OPERATE).accepting()
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=fake)
        async with station(cluster.node_credentials()) as one:
            one.ping(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 0)
            await until(lambda: "no connection to" in caplog.text)
            assert "certificate is not to be trusted" in caplog.text
        server.close()

    told(story())


# --- garbage ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["certified", "insecure"])
def ours(request: pytest.FixtureRequest, cluster: Cluster) -> Credentials:
    """A node's credentials, of either kind."""
    return cluster.node_credentials() if request.param == "certified" else cluster.insecure()


def friend_of(cluster: Cluster, ours: Credentials) -> Credentials:
    """Return credentials of the same kind."""
    return cluster.node_credentials() if ours.is_secure else cluster.insecure()


def frame(data: bytes) -> bytes:
    """Return data as one message on the wire."""
    return b"".join(pieces_of(data, 1 << 20))


GARBAGE = {
    "noise": b"\xde\xad\xbe\xef" * 100,
    "an unknown form": frame(b"\x07abc"),
    "no msgpack": frame(b"\x00\xc1\xc1"),
    "another type": frame(b"\x00" + msgspec.msgpack.encode({"a": 1})),
    "an unknown message": frame(b"\x00" + msgspec.msgpack.encode(["zz", 1])),
    "an id of the wrong length": frame(b"\x00" + msgspec.msgpack.encode(["hb", [b"short", "a:1", "z"]])),
    "too long a zone": frame(b"\x00" + msgspec.msgpack.encode(["hb", [bytes(16), "a:1", "z" * 101]])),
    "deep nesting": frame(b"\x00" + b"\x91" * 100_000),
    "a bomb": frame(b"\x01" + (1 << 31).to_bytes(4, "little") + b"x" * 100),
    "no zstd": frame(b"\x01" + (100).to_bytes(4, "little") + b"x" * 100),
    "an empty message": frame(b""),
    "too long a message": ((1 << 29).to_bytes(4, "little")),
    "pieces without end": (((1 << 20) | (1 << 31)).to_bytes(4, "little") + bytes(1 << 20)) * 17,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_from_a_node_ends_its_connection_with_one_refusal(
    cluster: Cluster, ours: Credentials, garbage: bytes
) -> None:
    async def story() -> None:
        theirs = friend_of(cluster, ours)
        async with station(ours) as one, station(friend_of(cluster, ours)) as friend:
            async with guest(one, theirs.dialling()) as evil:
                evil.say(theirs.greeting("node"))
                evil.write(garbage)
                said = await evil.rest()
                assert [type(each) for each in said] in ([Welcome, Refusal], [])  # a reset overtakes what was said
            await until(lambda: refused(one) in ({Reason.NO_MESSAGE: 1}, {Reason.TOO_LONG: 1}))
            await until(lambda: one.wire.status().nodes == 0)
            assert one.heard == []
            assert one.wire.status().arriving_bytes == 0
            await assert_it_works(one, friend)

    told(story())


@pytest.mark.parametrize("garbage", [*GARBAGE.values(), frame(bytes(GREETING_BYTES_MAX + 1))])
def test_garbage_instead_of_a_greeting_is_refused(cluster: Cluster, ours: Credentials, garbage: bytes) -> None:
    async def story() -> None:
        async with station(ours) as one, guest(one, friend_of(cluster, ours).dialling()) as evil:
            evil.write(garbage)
            assert all(isinstance(said, Refusal) for said in await evil.rest())
            await until(lambda: refused(one) in ({Reason.BAD_GREETING: 1}, {Reason.TOO_LONG: 1}))
            await until(lambda: one.wire.status().strangers == 0)

    told(story())


def test_another_version_is_refused_by_its_number(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with station(cluster.insecure()) as one, guest(one, None) as other:
            other.say(Greeting(VERSION + 1, "node", "", bytes(16)))
            assert await other.rest() == [Refusal(Reason.BAD_GREETING.value, one.address)]

    told(story())
    assert f"version {VERSION + 1}; ours is {VERSION}" in caplog.text


def test_a_message_cut_in_the_middle_leaves_nothing_behind(cluster: Cluster, ours: Credentials) -> None:
    async def story() -> None:
        theirs = friend_of(cluster, ours)
        async with station(ours) as one:
            async with guest(one, theirs.dialling()) as other:
                other.say(theirs.greeting("node"))
                other.write(frame(bytes(100_000))[:50_000])
                await until(lambda: one.wire.status().arriving_bytes > 49_000)
            await until(lambda: one.wire.status().nodes == 0)
            assert one.wire.status().arriving_bytes == 0
            assert refused(one) == {}

    told(story())


# --- slowness and floods ----------------------------------------------------------------------------------------------


def test_who_does_not_greet_in_time_is_refused(cluster: Cluster, ours: Credentials) -> None:
    """Neither before TLS nor after it."""

    async def story() -> None:
        clock = Clock()
        theirs = friend_of(cluster, ours).dialling()
        async with station(ours, clock=clock) as one, guest(one, None) as silent, guest(one, theirs) as shy:
            await until(lambda: one.wire.status().strangers == 2)
            clock.advance(9.0)
            one.wire.sweep()
            assert refused(one) == {}
            clock.advance(1.5)
            one.wire.sweep()
            assert refused(one) == {Reason.SLOW_HANDSHAKE: 2}
            await silent.rest()
            await shy.rest()
            clock.advance(LEAVE_S)
            one.wire.sweep()
            await until(lambda: one.wire.status().strangers == 0)

    told(story())


def test_a_byte_a_second_is_too_slow_and_a_slow_link_is_not(cluster: Cluster, ours: Credentials) -> None:
    async def story() -> None:
        clock, theirs = Clock(), friend_of(cluster, ours)
        message = frame(packed(Heartbeat(Peer(theirs.identity.id, "127.0.0.1:1", "z" * 90)), None))
        async with station(ours, clock=clock) as one, guest(one, theirs.dialling()) as slow:
            slow.say(theirs.greeting("node"))
            for byte in message[:9]:
                before = one.wire.status().bytes_received
                slow.write(bytes([byte]))
                await until_at_least(lambda: one.wire.status().bytes_received, before + 1)
                clock.advance(1.0)
                one.wire.sweep()
            assert refused(one) == {}
            clock.advance(1.5)
            one.wire.sweep()
            assert refused(one) == {Reason.SLOW_FRAME: 1}
            assert await slow.rest() == [Welcome(VERSION), Refusal(Reason.SLOW_FRAME.value, one.address)]
        async with station(ours, clock=clock) as one, guest(one, theirs.dialling()) as steady:
            steady.say(theirs.greeting("node"))
            long = frame(bytes(400_000))
            for start in range(0, 300_000, 10_000):  # 10 KB a second
                steady.write(long[start : start + 10_000])
                await until_at_least(lambda: one.wire.status().arriving_bytes, start + 9_000)
                clock.advance(1.0)
                one.wire.sweep()
            assert (refused(one), one.wire.status().nodes) == ({}, 1)

    told(story())


def test_a_silent_connection_is_closed_in_the_end_and_that_is_no_refusal(cluster: Cluster) -> None:
    async def story() -> None:
        clock, theirs = Clock(), cluster.node_credentials()
        async with station(cluster.node_credentials(), clock=clock) as one, guest(one, theirs.dialling()) as quiet:
            quiet.say(theirs.greeting("node"))
            await until(lambda: one.wire.status().nodes == 1)
            clock.advance(301.0)
            one.wire.sweep()
            assert await quiet.rest() == [Welcome(VERSION)]
            assert refused(one) == {}

    told(story())


def test_a_flood_of_connections_fills_only_the_places_for_strangers(cluster: Cluster, ours: Credentials) -> None:
    """Nodes that are connected are heard as before, and when the strangers' time is up others come in again."""

    async def story() -> None:
        clock = Clock()
        limits = WireLimits(strangers=8, strangers_per_address=8)
        async with station(ours, limits=limits, clock=clock) as one, station(friend_of(cluster, ours)) as friend:
            await assert_it_works(one, friend)
            host, _, port = one.address.rpartition(":")
            flood = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
            await until(lambda: refused(one) == {Reason.TOO_MANY_STRANGERS: 92})
            assert one.wire.status().strangers == 8
            await assert_it_works(one, friend)
            clock.advance(11.0)
            one.wire.sweep()
            clock.advance(LEAVE_S)
            one.wire.sweep()
            await until(lambda: one.wire.status().strangers == 0)
            async with station(friend_of(cluster, ours)) as late:
                await assert_it_works(one, late)
            for _, writer in flood:
                writer.transport.abort()

    told(story())


def test_handshakes_are_let_begin_only_so_fast(cluster: Cluster) -> None:
    """Each takes a core for a moment, whoever asks for it."""

    async def story() -> None:
        clock, limits = Clock(), WireLimits(arrivals_per_s=5)
        async with station(cluster.node_credentials(), limits=limits, clock=clock) as one:
            host, _, port = one.address.rpartition(":")
            flood = [await asyncio.open_connection(host, int(port)) for _ in range(12)]
            await until(lambda: refused(one) == {Reason.TOO_FAST: 2})
            for _, writer in flood:
                writer.transport.abort()
            await until(lambda: refused(one) == {Reason.TOO_FAST: 2, Reason.HUNG_UP: 10})
            clock.advance(1.0)
            async with station(cluster.node_credentials()) as friend:
                await assert_it_works(one, friend)

    told(story())


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (WireLimits(connections=4), Reason.TOO_MANY),
        (WireLimits(connections_per_address=4), Reason.TOO_MANY_OF_ADDRESS),
    ],
)
def test_connections_have_a_limit_in_all_and_per_address(cluster: Cluster, limits: WireLimits, reason: Reason) -> None:
    async def story() -> None:
        async with station(cluster.insecure(), limits=limits) as one:
            host, _, port = one.address.rpartition(":")
            some = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
            await until(lambda: refused(one) == {reason: 2})
            for _, writer in some:
                writer.transport.abort()
            await until(lambda: one.wire.status().strangers == 0)
            async with station(cluster.insecure()) as friend:
                await assert_it_works(one, friend)

    told(story())


def test_what_arrives_in_part_has_a_limit_over_all_connections(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(arriving_bytes=1_000_000)
        async with station(cluster.insecure(), limits=limits) as one:
            async with AsyncExitStack() as guests:
                for number in range(1, 6):
                    each = await guests.enter_async_context(guest(one, None))
                    each.say(cluster.insecure().greeting("node"))
                    each.write(frame(bytes(1_000_000))[:300_000])
                    if number <= 3:
                        await until_at_least(lambda: one.wire.status().arriving_bytes, number * 300_000)
                await until(lambda: refused(one) == {Reason.NO_MEMORY: 2})
                await until(lambda: one.wire.status().nodes == 3)
                assert one.wire.status().arriving_bytes == 900_000
            await until(lambda: one.wire.status().arriving_bytes == 0)

    told(story())


# --- telling of it ----------------------------------------------------------------------------------------------------


def test_refusals_are_logged_a_few_at_a_time_and_counted_all(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(3, clock)
    for number in range(10):
        refusals.note(Reason.NO_TLS, f"user\n at 10.0.0.{number}:1", "evil\n\x1b[31m" + "x" * 1_000)
    assert (len(caplog.records), refusals.counts[Reason.NO_TLS]) == (3, 10)
    assert all("\n" not in line.getMessage() and len(line.getMessage()) < 400 for line in caplog.records)
    clock.advance(11.0)
    refusals.note(Reason.DENIED, "10.0.0.1:1")
    assert "refused 7 more" in caplog.records[3].getMessage()
    assert caplog.records[4].levelno == logging.WARNING


def test_a_node_that_is_refused_says_why_and_does_not_dial_in_haste(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        home, lost = cluster.node(), cluster.node_credentials()
        (home / "denied").write_text(f"{lost.identity.id.hex()}\n")
        async with station(load_credentials(home)) as one, station(lost, clock=Clock()) as other:
            other.ping(one, 0)
            await until(lambda: "it refuses us" in caplog.text)
            for number in range(20):
                other.ping(one, number)
            assert Reason.DENIED.value in caplog.text
            assert refused(one) == {Reason.DENIED: 1}  # the next try comes when time has passed
            other.wire._clock.advance(10.0)  # type: ignore[attr-defined]
            other.wire.sweep()
            assert other.wire.status().dropped[Drop.UNREACHABLE] >= 20

    told(story())
