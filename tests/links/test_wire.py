"""What a node can rely on: order, no waiting, bounds, and links that come back. Over real sockets on loopback."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from headwater.control.messages.row_messages import RowsSent, Sending
from headwater.links.credentials import Credentials, insecure_node
from headwater.links.emulation import LinkQuality, LinkTable
from headwater.links.limits import WireLimits
from headwater.links.outgoing import Drop
from headwater.links.wire import Wire, WireConfig
from headwater.model.errors import ConfigError, EngineError
from headwater.overlay.messages import Heartbeat, Ping, Routed
from headwater.security.identity import Role
from tests.links.wires import LOOPS, Clock, Cluster, Station, station, told, until, until_at_least

Make = Callable[[], Credentials]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """Either event loop: asyncio's own, and the one that nodes use."""
    return str(request.param)


@pytest.fixture(params=["certified", "insecure"])
def credentials(request: pytest.FixtureRequest, cluster: Cluster) -> Make:
    """Credentials of a new node, of either kind."""
    return cluster.node_credentials if request.param == "certified" else cluster.insecure


def test_messages_arrive_once_in_order_with_the_senders_id(loop: str, credentials: Make) -> None:
    async def story() -> None:
        async with station(credentials()) as one, station(credentials()) as other:
            for number in range(1_000):
                one.ping(other, number)
            other.ping(one, 7)
            await until(lambda: len(other.heard) == 1_000 and one.heard)
            assert other.pings() == list(range(1_000))
            assert set(other.senders) == {one.wire.node_id}
            assert other.heard[0].sender == one.peer
            assert (one.senders, one.pings()) == ([other.wire.node_id], [7])
            assert (one.wire.status().messages_sent, other.wire.status().messages_received) == (1_000, 1_000)
            assert one.wire.status().queued_bytes == 0
            assert one.wire.status().is_secure is one.wire._credentials.is_secure

    told(story(), loop)


def test_a_big_message_arrives_whole_and_one_that_is_too_big_is_dropped(loop: str, credentials: Make) -> None:
    async def story() -> None:
        limits = WireLimits()
        async with station(credentials()) as one, station(credentials()) as other:
            payload = os.urandom(limits.message_bytes - 1_000)
            one.carry(other, payload)
            one.carry(other, bytes(limits.message_bytes))
            one.ping(other, 1)
            await until(lambda: len(other.heard) == 2)
            assert isinstance(other.heard[0], Routed)
            assert getattr(other.heard[0].cargo, "payload", None) == payload
            assert one.wire.status().dropped == {Drop.TOO_LONG: 1}

    told(story(), loop)


def test_a_message_that_only_shrinks_to_what_is_allowed_is_dropped_by_its_sender(loop: str, credentials: Make) -> None:
    """The receiver would hang up on it when it unpacks it, and what was said behind it would be lost."""

    async def story() -> None:
        limits = WireLimits(message_bytes=100_000)
        thin = LinkTable("elsewhere", default=LinkQuality(bytes_per_s=10_000_000))
        async with (
            station(credentials(), limits=limits) as other,
            station(credentials(), limits=limits, links=thin) as one,
        ):
            one.carry(other, bytes(200_000))
            one.carry(other, bytes(limits.message_bytes - 1_000))
            one.ping(other, 1)
            await until(lambda: other.pings() == [1])
            assert len(other.heard) == 2
            assert one.wire.status().dropped == {Drop.TOO_LONG: 1}
            assert other.wire.status().refused == {}

    told(story(), loop)


def test_a_link_comes_back_after_the_receiver_was_restarted(loop: str, credentials: Make) -> None:
    """It has the same certificate and address; what was said meanwhile may be lost, and nothing comes twice."""

    async def story() -> None:
        mine, theirs = credentials(), credentials()
        limits = WireLimits(redial_min_s=0.001, redial_max_s=0.01)
        async with station(mine, limits=limits) as one:
            async with station(theirs) as other:
                address = other.address
                one.ping(address, 0)
                await until(lambda: other.heard)
            async with station(theirs, listen=address) as other:
                numbers = iter(range(1, 1_000_000))

                def is_heard_again() -> bool:
                    one.ping(address, next(numbers))
                    return bool(other.heard)

                await until(is_heard_again)
                first = other.pings()[0]
                last = next(numbers)
                one.ping(address, last)
                await until(lambda: other.pings()[-1] == last)
                assert other.pings() == sorted(set(other.pings()))
                assert other.pings()[-1] - first == len(other.pings()) - 1

    told(story(), loop)


class SlowOnce:
    """Credentials whose first greeting takes longer than anybody may take to dial, as on a machine that is too busy."""

    def __init__(self, given: Credentials, seconds: float) -> None:
        self._given, self._seconds = given, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)

    def greeting(self, role: Literal["node", "user"]) -> Any:
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            pass
        self._seconds = 0.0
        return self._given.greeting(role)


def test_a_connection_that_is_made_just_when_its_time_is_up_is_made_again(loop: str, credentials: Make) -> None:
    """The loop closes it without a word; what was said would be written to nobody for ever."""

    async def story() -> None:
        limits = WireLimits(dial_s=1.0, redial_min_s=0.001, redial_max_s=0.01)
        slow = cast("Credentials", SlowOnce(credentials(), 1.5))
        async with station(slow, limits=limits) as one, station(credentials()) as other:
            numbers = iter(range(1_000_000))

            def is_heard() -> bool:
                one.ping(other, next(numbers))
                return bool(other.heard)

            await until(is_heard)
            assert set(other.senders) == {one.wire.node_id}
            assert other.pings() == sorted(set(other.pings()))

    told(story(), loop)


def test_a_sender_that_was_restarted_is_heard_again(loop: str, credentials: Make) -> None:
    async def story() -> None:
        theirs = credentials()
        async with station(credentials()) as one:
            for number in range(3):
                async with station(theirs) as other:
                    other.ping(one, number)
                    await until_at_least(lambda: len(one.pings()), number + 1)
            assert one.pings() == [0, 1, 2]
            assert len(set(one.senders)) == 1

    told(story(), loop)


def test_last_words_are_sent_before_a_wire_is_closed(loop: str, credentials: Make) -> None:
    async def story() -> None:
        async with station(credentials()) as one:
            async with station(credentials()) as other:
                for number in range(100):
                    other.ping(one, number)
            await until(lambda: len(one.heard) == 100)
            assert one.pings() == list(range(100))

    told(story(), loop)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_a_queue_is_dropped_and_counted(cluster: Cluster) -> None:
    """Nobody reads at the other end: the queue fills up to its limit, and sending still takes no time."""

    async def story() -> None:
        limits = WireLimits(message_bytes=1 << 20, queue_bytes=2 << 20)
        deaf = await asyncio.start_server(lambda reader, _: reader._transport.pause_reading(), "127.0.0.1", 0)  # type: ignore[attr-defined]
        address = f"127.0.0.1:{deaf.sockets[0].getsockname()[1]}"
        async with station(cluster.insecure(), limits=limits, patience_s=0.0) as one:
            for _ in range(100):
                one.carry(address, os.urandom(100_000))
            status = one.wire.status()
            assert status.dropped == {Drop.QUEUE_FULL: 80}
            assert limits.queue_bytes - 100_500 < status.queued_bytes <= limits.queue_bytes + 80
        deaf.close()

    told(story())


def test_links_are_congested_while_more_waits_than_they_carry(cluster: Cluster) -> None:
    """What waits for somebody that nobody reaches does not count: there is no link that could be congested."""

    async def story() -> None:
        clock = Clock()
        deaf = await asyncio.start_server(lambda reader, _: reader._transport.pause_reading(), "127.0.0.1", 0)  # type: ignore[attr-defined]
        address = f"127.0.0.1:{deaf.sockets[0].getsockname()[1]}"
        async with station(cluster.insecure(), clock=clock, patience_s=0.0) as one:
            one.carry("127.0.0.1:1", bytes(1_000_000))
            clock.advance(1.0)
            assert one.wire.congestion() == 0.0
            for _ in range(30):
                one.carry(address, os.urandom(1_000_000))
            await until(lambda: one.wire.status().bytes_sent > 0)
            clock.advance(1.0)
            one.wire.congestion()
            clock.advance(1.0)
            assert one.wire.congestion() == 1.0
        deaf.close()

    told(story())


def test_links_that_carry_all_that_is_sent_are_not_congested(cluster: Cluster) -> None:
    async def story() -> None:
        async with station(cluster.insecure()) as one, station(cluster.insecure()) as other:
            one.carry(other, os.urandom(1_000_000))
            await until_at_least(lambda: len(other.heard), 1)
            assert one.wire.congestion() == 0.0

    told(story())


def test_all_queues_together_have_a_limit_and_so_has_their_number(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(message_bytes=100_000, queue_bytes=100_000, queue_bytes_all=250_000, destinations=5)
        async with station(cluster.insecure(), limits=limits) as one:
            for port in range(1, 9):
                one.carry(f"127.0.0.1:{port}", bytes(90_000))
            assert one.wire.status().dropped == {Drop.ALL_FULL: 4, Drop.TOO_MANY: 2}
            assert one.wire.status().queued_bytes < 250_000
            assert one.wire.status().destinations == 5

    told(story())


def test_addresses_of_nobody_keep_us_from_no_node(cluster: Cluster) -> None:
    """A node in wrong hands names a thousand, again and again; who is connected keeps its place."""

    async def story() -> None:
        limits = WireLimits(destinations=3)
        async with (
            station(cluster.insecure(), limits=limits) as one,
            station(cluster.insecure()) as other,
            station(cluster.insecure()) as third,
        ):
            one.beat(other)
            await until(lambda: other.heard)
            for port in range(1, 100):
                one.beat(f"127.0.0.1:{port}")
            one.beat(third)
            one.ping(other, 1)
            await until(lambda: third.heard and len(other.heard) == 2)
            assert one.wire.status().destinations == 3
            assert one.wire.status().connected == 2

    told(story())


def test_messages_to_whom_nobody_can_reach_are_dropped_when_they_are_stale(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Clock()
        async with station(cluster.insecure(), clock=clock) as one:
            one.ping("127.0.0.1:1", 0)
            clock.advance(2.0)
            one.ping("127.0.0.1:1", 1)
            clock.advance(2.0)
            one.wire.sweep()
            assert one.wire.status().dropped == {Drop.UNREACHABLE: 1}
            clock.advance(100.0)
            one.wire.sweep()
            await until(lambda: all(way._dialling is None for way in one.wire._ways.values()))
            one.wire.sweep()
            assert one.wire.status().destinations == 0
            assert one.wire.status().dropped == {Drop.UNREACHABLE: 2}
            assert one.wire.status().queued_bytes == 0

    told(story())


def test_that_a_node_which_has_left_cannot_be_reached_is_no_news(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Something was on its way to it when it said that it goes; once it is there again, it is as any other."""

    async def story() -> None:
        async with station(cluster.insecure(), limits=WireLimits(stale_s=1e-9)) as one:

            def reaches(other: Station) -> bool:
                one.ping(other, 1)
                return bool(other.heard)

            def is_unreachable(other: Station, before: int = 0) -> bool:
                one.ping(other, 1)
                return one.wire.status().dropped.get(Drop.UNREACHABLE, 0) > before

            async with station(cluster.insecure()) as other:
                await until(lambda: reaches(other))
                one.wire.left(other.address)
            await until(lambda: is_unreachable(other))
            assert "no connection to" not in caplog.text
            async with station(cluster.insecure(), other.address) as again:
                await until(lambda: reaches(again))
            dropped = one.wire.status().dropped[Drop.UNREACHABLE]
            await until(lambda: is_unreachable(other, dropped))
            assert "no connection to" in caplog.text

    told(story())


def test_a_name_that_nobody_could_look_up_is_no_address(cluster: Cluster) -> None:
    async def story() -> None:
        async with station(cluster.node_credentials()) as one:
            for address in ("x" * 70 + ".example:1", "a..b:1", "\u00fc" * 60 + ":1"):
                one.ping(address, 0)
            assert (one.wire.status().dropped, one.wire.status().destinations) == ({Drop.BAD_ADDRESS: 3}, 0)

    told(story())


def test_a_name_for_which_the_resolver_raises_no_oserror_is_an_address_that_cannot_be_reached(cluster: Cluster) -> None:
    """With a zero in it: nobody types such an address, but a node may be told of it."""

    async def story() -> None:
        async with station(cluster.node_credentials()) as one:
            one.ping("a\0b:1", 0)
            await until_at_least(lambda: max(way._failures for way in one.wire._ways.values()), 1)

    told(story())


def test_dialling_is_tried_again_with_growing_pauses_and_only_while_something_waits(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Clock()
        async with station(cluster.insecure(), clock=clock) as one:
            one.ping("127.0.0.1:1", 0)
            way = one.wire._ways["127.0.0.1:1"]
            pauses = []
            for failures in range(1, 10):
                await until_at_least(lambda: way._failures, failures)
                pauses.append(way._redial_at - clock.now)
                clock.advance(pauses[-1])
                way._used_at = clock.now
                one.ping("127.0.0.1:1", failures)
            assert pauses[0] <= 0.1
            assert all(2.5 <= pause <= 5.0 for pause in pauses[-2:])
            assert pauses[3] > pauses[0]

    told(story())


def test_a_link_that_is_not_used_is_closed_and_opened_again_when_needed(loop: str, cluster: Cluster) -> None:
    async def story() -> None:
        clock = Clock()
        mine, theirs = cluster.node_credentials(), cluster.node_credentials()
        async with station(mine, clock=clock) as one, station(theirs, clock=clock) as two:
            one.ping(two, 0)
            await until(lambda: two.heard)
            assert (one.wire.status().connected, two.wire.status().nodes) == (1, 1)
            clock.advance(61.0)
            one.wire.sweep()
            await until(lambda: two.wire.status().nodes == 0)
            assert one.wire.status().destinations == 0
            one.ping(two, 1)
            await until(lambda: two.pings() == [0, 1])

    told(story(), loop)


def test_a_node_that_dials_again_takes_the_place_of_its_older_connection(cluster: Cluster) -> None:
    async def story() -> None:
        theirs = cluster.node_credentials()
        async with station(cluster.node_credentials()) as one, station(theirs) as first, station(theirs) as second:
            first.ping(one, 0)
            await until(lambda: one.pings() == [0])
            second.ping(one, 1)
            await until(lambda: len(one.heard) == 2 and one.wire.status().nodes == 1)
            assert one.pings() == [0, 1]

    told(story())


# --- lanes and compression --------------------------------------------------------------------------------------------


def test_short_messages_pass_between_the_pieces_of_bulky_ones(cluster: Cluster) -> None:
    async def story() -> None:
        sender = cluster.insecure()
        async with station(cluster.insecure()) as other, station(sender, bulky=frozenset({Routed})) as one:
            one.beat(other)
            await until(lambda: other.heard)
            for number in range(20):
                one.carry(other, os.urandom(1 << 20), number)
            one.ping(other, 1)
            await until(lambda: len(other.heard) == 22)
            kinds = [type(message) for message in other.heard]
            assert kinds[:2] == [Heartbeat, Ping]
            assert [message.number for message in other.heard if isinstance(message, Routed)] == list(range(20))

    told(story())


def test_rows_that_wait_to_be_sent_are_not_sent_again(cluster: Cluster) -> None:
    """Whoever sends them again cannot know that they wait; once they have left, they may be needed again."""

    async def story() -> None:
        async with station(cluster.insecure()) as other, station(cluster.insecure()) as one:
            sending = Sending("rain", one.wire.node_id, 0, b"o" * 16, 0, 0, 1, ((0, b"row"),), ())
            for hops in range(3):
                one.wire.send(other.address, RowsSent(one.peer, one.peer, None, hops, sending))
            await until(lambda: len(other.heard) == 1)
            assert one.wire.status().dropped == {Drop.WAITS: 2}
            one.wire.send(other.address, RowsSent(one.peer, one.peer, None, 0, sending))
            await until(lambda: len(other.heard) == 2)

    told(story())


def test_long_messages_are_compressed_where_a_link_is_worth_it(cluster: Cluster) -> None:
    """Loopback is not; a link of limited bandwidth is."""

    async def story() -> list[int]:
        sent = []
        for quality in (LinkQuality(), LinkQuality(bytes_per_s=100 << 20)):
            links = LinkTable("zone", default=quality)
            async with station(cluster.insecure(), links=links) as one, station(cluster.insecure()) as other:
                one.carry(other, b"the same again and again" * 10_000)
                await until_at_least(lambda: len(other.heard), 1)
                assert getattr(other.heard[0].cargo, "payload", b"") == b"the same again and again" * 10_000  # type: ignore[union-attr]
                sent.append(one.wire.status().bytes_sent)
        return sent

    plain, small = told(story())
    assert plain > 240_000
    assert small < 5_000


# --- insecure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.1.2.3:7100", "example.org:7100", "[::]:0"])
def test_plaintext_is_refused_beyond_loopback(cluster: Cluster, listen: str) -> None:
    with pytest.raises(ConfigError, match=r"--insecure works on this machine only.*headwater certs init"):
        Wire(WireConfig(listen=listen), cluster.insecure(), on_message=lambda sender, message: None)


def test_an_insecure_node_sends_nothing_beyond_loopback(cluster: Cluster) -> None:
    async def story() -> None:
        async with station(cluster.insecure()) as one:
            for address in ("10.0.0.1:7100", "example.org:7100", "nonsense"):
                one.ping(address, 0)
            assert one.wire.status().dropped == {Drop.NOT_LOOPBACK: 2, Drop.BAD_ADDRESS: 1}
            assert one.wire.status().destinations == 0

    told(story())


def test_an_insecure_node_has_the_same_id_after_a_restart(tmp_path: Path) -> None:
    first, again = insecure_node(tmp_path / "data"), insecure_node(tmp_path / "data")
    assert first == again
    assert first.identity.id != insecure_node(tmp_path / "other").identity.id
    assert (tmp_path / "data" / "node.key").stat().st_mode & 0o777 == 0o600


# --- setting it up ----------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told(cluster: Cluster) -> None:
    async def story() -> None:
        async with station(cluster.insecure()) as one:
            port = one.address.rpartition(":")[2]
            with pytest.raises(EngineError, match=rf"port {port} of 127\.0\.0\.1 cannot be opened for nodes and users"):
                async with station(cluster.insecure(), listen=one.address):
                    pass

    told(story())


def test_a_users_certificate_does_not_make_a_node(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="cannot be a node"):
        Wire(WireConfig(listen="127.0.0.1:0"), cluster.user_credentials(Role.OPERATE), on_message=lambda *_: None)


@pytest.mark.parametrize(
    "change", [{"connections": 0}, {"connections": 4}, {"queue_bytes": 1 << 20}, {"unused_s": 301.0}]
)
def test_limits_that_cannot_work_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(WireLimits(), **change)  # type: ignore[arg-type]


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'here' is not an address to listen"):
        WireConfig(listen="here")
