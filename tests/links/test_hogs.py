"""Who takes all that there is gives way to others: budgets of a port are shared by identity, and by address before."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import get_args

import pytest

from headwater.client.connection import connect_async
from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.links.credentials import Credentials
from headwater.links.incoming import REFUSED_AT_ONCE
from headwater.links.intake import TURN_MESSAGES, TURN_S, Taking
from headwater.links.limits import WireLimits
from headwater.links.rates import RATES, Rate
from headwater.links.refusals import Reason
from headwater.links.requests import RequestRefused
from headwater.links.speech import VERSION, Welcome, packed
from headwater.model.peers import Peer
from headwater.overlay.messages import Heartbeat, Ping
from headwater.security.identity import Role
from tests.links.guests import Guest, assert_it_works, guest, refused
from tests.links.test_ports import frame
from tests.links.test_requests import TABLE, Desk, Done, Look, Submit, Wait, at_desk
from tests.links.wires import LOOPS, Clock, Cluster, Station, station, told, until, until_at_least


@asynccontextmanager
async def user_at(of: Station, credentials: Credentials) -> AsyncIterator[Guest]:
    """A user who has greeted and been let in."""
    async with guest(of, credentials.dialling()) as one:
        before = of.wire.status().users + sum(refused(of).values())
        one.say(credentials.greeting("user"))
        await until(lambda: of.wire.status().users + sum(refused(of).values()) > before)
        yield one


# --- bytes of unfinished messages -------------------------------------------------------------------------------------


def test_a_user_with_many_unfinished_messages_gives_way_to_one_with_a_single_one(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> str:
        limits = WireLimits(arriving_bytes=2_000_000, arriving_bytes_of_others=1_000_000)
        eve, ann = cluster.user_credentials(Role.SEE), cluster.user_credentials(Role.SUBMIT)
        async with at_desk(cluster.node_credentials(), Desk(), limits=limits) as one, AsyncExitStack() as stack:
            for number in range(1, 6):
                each = await stack.enter_async_context(user_at(one, eve))
                each.write(frame(bytes(500_000))[:190_000])
                await until_at_least(lambda: one.wire.status().arriving_bytes, number * 190_000)
            async with await connect_async(one.address, ann, TABLE) as client:
                assert await client.ask(Submit(os.urandom(400_000))) == Done(400_000)
            assert set(refused(one)) == {Reason.NO_MEMORY}
            assert one.wire.status().arriving_bytes <= 1_000_000
        return str(eve.identity)

    hog = told(story())
    cut = [record.getMessage() for record in caplog.records if Reason.NO_MEMORY.value in record.getMessage()]
    assert cut
    assert all(f"refused {hog}" in line and "bytes of unfinished messages, most of all" in line for line in cut)


def test_what_is_kept_for_nodes_is_there_for_them_whatever_users_hold(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(arriving_bytes=2_000_000, arriving_bytes_of_others=1_000_000)
        eve, node = cluster.user_credentials(Role.SEE), cluster.node_credentials()
        async with (
            at_desk(cluster.node_credentials(), Desk(), limits=limits) as one,
            user_at(one, eve) as hog,
            guest(one, node.dialling()) as other,
        ):
            hog.write(frame(bytes(2_000_000))[:950_000])
            await until_at_least(lambda: one.wire.status().arriving_bytes, 950_000)
            other.say(node.greeting("node"))
            other.write(frame(bytes(2_000_000))[:950_000])
            await until_at_least(lambda: one.wire.status().arriving_bytes, 1_900_000)
            assert refused(one) == {}
            hog.write(bytes(60_000))
            await until(lambda: refused(one) == {Reason.NO_MEMORY: 1})
            await until(lambda: (one.wire.status().nodes, one.wire.status().users) == (1, 0))

    told(story())


def test_what_has_arrived_of_a_message_buys_no_time_for_the_rest(cluster: Cluster) -> None:
    """Else 13 MB that come at once may wait for their end for half an hour."""

    async def story() -> None:
        clock, node = Clock(), cluster.node_credentials()
        async with station(cluster.node_credentials(), clock=clock) as one, guest(one, node.dialling()) as slow:
            slow.say(node.greeting("node"))
            slow.write(frame(bytes(900_000))[:800_000])
            await until_at_least(lambda: one.wire.status().arriving_bytes, 800_000)
            clock.advance(9.0)
            one.wire.sweep()
            assert refused(one) == {}
            clock.advance(1.5)
            one.wire.sweep()
            assert refused(one) == {Reason.SLOW_FRAME: 1}

    told(story())


def test_short_messages_buy_no_time_for_a_long_one_between_whose_pieces_they_are(cluster: Cluster) -> None:
    """They are on the other lane; only bytes count, at the pace of the slowest link that is waited for."""

    async def story() -> None:
        clock, node = Clock(), cluster.node_credentials()
        beat = frame(packed(Ping(Peer(node.identity.id, "127.0.0.1:1", "zone"), 1), None))
        long = ((1 << 14) | (1 << 31) | (1 << 30)).to_bytes(4, "little") + bytes(1 << 14)
        async with station(cluster.node_credentials(), clock=clock) as one, guest(one, node.dialling()) as sly:
            sly.say(node.greeting("node"))
            sly.write(long)
            await until_at_least(lambda: one.wire.status().arriving_bytes, 1 << 14)
            for number in range(1, 12):
                sly.write(beat)
                await until_at_least(lambda: len(one.heard), number)
                clock.advance(1.0)
                one.wire.sweep()
            assert refused(one) == {Reason.SLOW_FRAME: 1}

    told(story())


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_user_with_many_silent_connections_keeps_no_other_user_and_no_node_out(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(connections=8, connections_of_others=6, connections_of_one=6, requests=8, requests_of_one=8)
        eve, ann = cluster.user_credentials(Role.SEE), cluster.user_credentials(Role.SEE)
        async with (
            at_desk(cluster.node_credentials(), Desk(), limits=limits) as one,
            station(cluster.node_credentials()) as friend,
            AsyncExitStack() as stack,
        ):
            idle = [await stack.enter_async_context(user_at(one, eve)) for _ in range(9)]
            assert refused(one) == {Reason.TOO_MANY: 3}
            assert one.wire.status().users == 6
            async with await connect_async(one.address, ann, TABLE) as client:
                assert (await client.ask(Look("x"))).what == "x"
                assert refused(one) == {Reason.TOO_MANY: 4}
                await assert_it_works(one, friend)
                assert refused(one) == {Reason.TOO_MANY: 4}
            ended = [Welcome(VERSION) in await each.rest() for each in idle[:4]]
            assert ended == [True] * 4, "those that were silent for longest"

    told(story())


def test_a_connection_on_which_an_answer_is_waited_for_is_not_the_first_to_go(cluster: Cluster) -> None:
    async def story() -> None:
        clock, desk, ann = Clock(), Desk(), cluster.user_credentials(Role.SEE)
        limits = WireLimits(connections_of_one=2)
        async with (
            at_desk(cluster.node_credentials(), desk, limits=limits, clock=clock) as one,
            await connect_async(one.address, ann, TABLE) as busy,
        ):
            waits = asyncio.ensure_future(busy.ask(Wait()))
            await until(lambda: desk.asked)
            clock.advance(1.0)
            async with await connect_async(one.address, ann, TABLE), await connect_async(one.address, ann, TABLE):
                await until(lambda: refused(one) == {Reason.TOO_MANY: 1})
                desk.go_on.set()
                assert await waits == Done()

    told(story())


def test_strangers_of_two_addresses_keep_nobody_of_a_third_out(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(strangers=8, strangers_per_address=4)
        ann = cluster.user_credentials(Role.SEE)
        async with at_desk(cluster.node_credentials(), Desk(), limits=limits) as one:
            host, _, port = one.address.rpartition(":")
            silent = [
                await asyncio.open_connection(host, int(port), local_addr=(since, 0))
                for since in ("127.0.0.2", "127.0.0.3")
                for _ in range(5)
            ]
            await until(lambda: refused(one) == {Reason.TOO_MANY_STRANGERS: 2})
            assert one.wire.status().strangers == 8
            async with await connect_async(one.address, ann, TABLE) as client:
                assert (await client.ask(Look("x"))).what == "x"
            assert refused(one) == {Reason.TOO_MANY_STRANGERS: 3}
            for _, writer in silent:
                writer.transport.abort()

    told(story())


def test_of_one_address_the_newest_stranger_is_let_in(cluster: Cluster) -> None:
    """Silent ones behind the same router as ours are cut, not ours."""

    async def story() -> None:
        limits = WireLimits(strangers=8, strangers_per_address=4)
        async with (
            station(cluster.node_credentials(), limits=limits) as one,
            station(cluster.node_credentials()) as friend,
        ):
            host, _, port = one.address.rpartition(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
            await until(lambda: one.wire.status().strangers == 4)
            await assert_it_works(one, friend)
            assert refused(one) == {Reason.TOO_MANY_STRANGERS: 1}
            assert await silent[0][0].read() == b""
            for _, writer in silent:
                writer.transport.abort()

    told(story())


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_user_with_many_requests_under_way_gives_way_with_the_latest(cluster: Cluster) -> None:
    async def story() -> None:
        desk, limits = Desk(), WireLimits(requests=4, requests_of_one=4)
        eve, ann = cluster.user_credentials(Role.SEE), cluster.user_credentials(Role.SEE)
        async with (
            at_desk(cluster.node_credentials(), desk, limits=limits) as one,
            await connect_async(one.address, eve, TABLE) as many,
            await connect_async(one.address, ann, TABLE) as few,
        ):
            waiting = []
            for number in range(1, 5):
                waiting.append(asyncio.ensure_future(many.ask(Wait())))
                await until(lambda number=number: len(desk.asked) == number)  # type: ignore[misc]
            assert (await few.ask(Look("x"))).what == "x"
            with pytest.raises(RequestRefused, match="too many requests at once; wait for an answer first: its holder"):
                await waiting[3]
            assert not any(one.done() for one in waiting[:3])
            desk.go_on.set()
            assert await asyncio.gather(*waiting[:3]) == [Done()] * 3
            assert refused(one) == {Reason.TOO_MANY_REQUESTS: 1}

    told(story())


# --- the time of the loop ---------------------------------------------------------------------------------------------


class Heap:
    """Messages that wait, and the order in which all are taken; each takes time if a clock is given."""

    def __init__(self, name: str, count: int, order: list[str], clock: Clock, takes_s: float = 0.0) -> None:
        """Have so many."""
        self.name, self.count, self.order, self.clock, self.takes_s = name, count, order, clock, takes_s

    def take(self) -> bool:
        """Take one."""
        if not self.count:
            return False
        self.count -= 1
        self.order.append(self.name)
        self.clock.advance(self.takes_s)
        return True


def test_a_message_waits_for_one_turn_of_a_flood_and_so_does_everything_else_on_the_loop() -> None:
    async def story() -> None:
        order: list[str] = []
        clock = Clock()
        taking = Taking(clock)
        taking.put(Heap("flood", 100_000, order, clock), "flooder")
        taking.put(Heap("honest", 1, order, clock), "honest")
        asyncio.get_running_loop().call_soon(order.append, "task")
        await until(lambda: len(order) == 100_002)
        assert order.index("honest") <= TURN_MESSAGES
        assert order.index("task") < 50_000

    told(story())


def test_time_is_shared_evenly_however_long_a_message_takes_and_however_many_connections_one_has() -> None:
    async def story() -> None:
        order: list[str] = []
        clock = Clock()
        taking = Taking(clock)
        for _ in range(10):
            taking.put(Heap("many", 1_000, order, clock, TURN_S), "many")
        taking.put(Heap("long", 1_000, order, clock, 10 * TURN_S), "long")
        taking.put(Heap("short", 1_000, order, clock, TURN_S / 10), "short")
        await until(lambda: order.count("short") == 1_000)
        until_then = order[: len(order) - order[::-1].index("short")]
        assert 100 - 20 <= until_then.count("many") <= 100 + 20
        assert 10 - 2 <= until_then.count("long") <= 10 + 2

    told(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_flood_beyond_a_rate_is_refused_and_counted_and_others_are_heard(cluster: Cluster, loop: str) -> None:
    """What has no part in the flood is heard on the same connection, too, and the flood is read only so fast."""

    async def story() -> None:
        clock, flooder = Clock(), cluster.node_credentials()
        rates, peer = {Ping: Rate(per_s=1, burst=50)}, Peer(flooder.identity.id, "127.0.0.1:1", "zone")
        async with (
            station(cluster.node_credentials(), clock=clock, rates=rates) as one,
            station(cluster.node_credentials()) as friend,
            guest(one, flooder.dialling()) as flood,
        ):
            flood.say(flooder.greeting("node"))
            flood.write(frame(packed(Ping(peer, 7), None)) * 10_000 + frame(packed(Heartbeat(peer), None)))
            await until_at_least(lambda: refused(one).get(Reason.TOO_OFTEN, 0), 1)
            await assert_it_works(one, friend)
            await until(lambda: Heartbeat(peer) in one.heard)
            assert one.pings().count(7) == 50
            assert refused(one) == {Reason.TOO_OFTEN: 9_950}
            clock.advance(3.0)
            flood.write(frame(packed(Ping(peer, 8), None)) * 10)
            await until(lambda: refused(one) == {Reason.TOO_OFTEN: 9_957})
            assert one.pings().count(8) == 3

    told(story(), loop)


def test_a_flood_is_not_read_further_than_it_is_taken(cluster: Cluster) -> None:
    """TCP holds the sender back; nothing of it grows here."""

    async def story() -> None:
        flooder, limits = cluster.node_credentials(), WireLimits(refused_per_s=1)  # one rest, and it is a long one
        peer = Peer(flooder.identity.id, "127.0.0.1:1", "zone")
        async with (
            station(cluster.node_credentials(), rates={Ping: Rate(per_s=1, burst=10)}, limits=limits) as one,
            station(cluster.node_credentials()) as friend,
            guest(one, flooder.dialling()) as flood,
        ):
            flood.say(flooder.greeting("node"))
            flood.write(frame(packed(Ping(peer, 7), None)) * 200_000)
            await until_at_least(lambda: refused(one).get(Reason.TOO_OFTEN, 0), REFUSED_AT_ONCE)
            await assert_it_works(one, friend)
            [guest_of_flood] = [each for each in one.wire._house.guests if each.holder == flooder.identity.id]
            await until(lambda: guest_of_flood._is_full)  # type: ignore[attr-defined]
            read = one.wire.status().bytes_received
            await assert_it_works(one, friend)
            assert one.wire.status().bytes_received - read < 1_000
            assert one.wire.status().bytes_received < 2_000_000 < 200_000 * len(frame(packed(Ping(peer, 7), None)))

    told(story())


def test_beats_that_come_together_are_one(cluster: Cluster) -> None:
    async def story() -> None:
        clock, node = Clock(), cluster.node_credentials()
        beat = Heartbeat(Peer(node.identity.id, "127.0.0.1:1", "zone"))
        async with (
            station(cluster.node_credentials(), clock=clock, rates=RATES) as one,
            guest(one, node.dialling()) as other,
        ):
            other.say(node.greeting("node"))
            other.write(frame(packed(beat, None)) * 150)
            await until(lambda: one.wire.status().messages_received == 150)
            clock.advance(1.0)
            other.say(beat)
            await until(lambda: one.wire.status().messages_received == 151)
            assert (len(one.heard), refused(one)) == (2, {})

    told(story())


def test_every_kind_of_message_has_a_rate_but_rows_and_state() -> None:
    """They come as fast as a link carries them, and so does what is answered to each stretch of them."""
    without = {kind.__name__ for kind in get_args(AnyNodeMessage) if kind not in RATES}
    assert without == {"RowsSent", "RowsKept", "StateAsked", "StateTold"}
