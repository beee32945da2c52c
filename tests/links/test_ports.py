"""A node's port under garbage, cut messages, slow clients and floods: it goes on working and says what it refused."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from headwater.links.credentials import Credentials
from headwater.links.incoming import LEAVE_S
from headwater.links.limits import GREETING_BYTES_MAX, WireLimits
from headwater.links.refusals import Reason
from headwater.links.speech import VERSION, Greeting, Refusal, Welcome, packed
from headwater.model.frames import pieces_of
from headwater.model.peers import Peer
from headwater.overlay.messages import Heartbeat, Ping
from tests.links.guests import assert_it_works, guest, refused
from tests.links.wires import Clock, Cluster, station, told, until, until_at_least


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
    "a text that is none": frame(b"\x00" + msgspec.msgpack.encode(["hb", [bytes(16), "a:1", "z"]])[:-1] + b"\xff"),
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


def test_what_a_node_said_before_it_was_cut_off_is_heard_and_nothing_of_the_rest_is_kept(cluster: Cluster) -> None:
    """More was said than is taken in one turn, and all of it had arrived when the connection broke."""

    async def story() -> None:
        theirs = cluster.node_credentials()
        beat = frame(packed(Ping(Peer(theirs.identity.id, "127.0.0.1:1", "zone"), 1), None))
        async with station(cluster.node_credentials()) as one:
            async with guest(one, theirs.dialling()) as other:
                other.say(theirs.greeting("node"))
                other.write(beat * 5_000 + frame(bytes(10_000))[:5_000])
                await until_at_least(lambda: one.wire.status().bytes_received, 5_000 * len(beat) + 5_000)
            await until(lambda: len(one.heard) == 5_000)
            await until(lambda: one.wire.status().nodes == 0)
            assert (one.wire.status().arriving_bytes, refused(one)) == (0, {})

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


def test_what_arrives_in_part_has_a_limit_over_all_connections(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(arriving_bytes=1_000_000, arriving_bytes_of_others=500_000)
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
