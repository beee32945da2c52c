"""Users ask nodes: typed, by role, within limits, and every error says what to do."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from headwater.client.connection import AsyncNodeClient, Conversation, NodeLost, connect, connect_async
from headwater.links.credentials import Credentials, insecure_user, load_credentials
from headwater.links.limits import WireLimits
from headwater.links.refusals import Reason
from headwater.links.requests import Caller, RequestRefused, RequestTable
from headwater.links.speech import Refusal
from headwater.model.errors import ConfigError, HeadwaterError
from headwater.security.authority import DENIED
from headwater.security.identity import Role
from tests.links.wires import LOOPS, Clock, Cluster, Station, connections_to, station, told, until


class Look(msgspec.Struct, tag="look"):
    """Ask for something to see."""

    what: str = ""


class Submit(msgspec.Struct, tag="submit"):
    """Bring a flow."""

    flow: bytes


class Stop(msgspec.Struct, tag="stop"):
    """Stop something."""

    app: str


class Wait(msgspec.Struct, tag="wait"):
    """Be answered when somebody else says so."""


class Seen(msgspec.Struct, tag="seen"):
    """An answer."""

    by: str
    what: str


class Done(msgspec.Struct, tag="done"):
    """Another answer."""

    bytes_taken: int = 0


TABLE: Final = RequestTable(
    {Look: Role.SEE, Submit: Role.SUBMIT, Stop: Role.OPERATE, Wait: Role.SEE}, answers=(Seen, Done)
)
# What an older node knows.
SHORT_TABLE: Final = RequestTable({Look: Role.SEE}, answers=(Seen,))


class Desk:
    """Answers requests, and remembers them."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        self.asked: list[Any] = []
        self.go_on = asyncio.Event()

    async def answer(self, caller: Caller, request: Any) -> Any:
        """Answer."""
        self.asked.append(request)
        match request:
            case Look("trouble"):
                raise HeadwaterError("the app 'a' is not known here; see `headwater apps`")
            case Look("typed"):
                raise RequestRefused(Refusal("no room for the app", remedy="stop another first"))
            case Look("mistake"):
                raise ZeroDivisionError("secret=hunter2")
            case Look("much"):
                return Seen("", "x" * (1 << 20))
            case Look(what):
                return Seen(f"{caller.name}/{caller.role}", what)
            case Submit(flow):
                return Done(len(flow))
            case Wait():
                await self.go_on.wait()
        return Done()


def at_desk(credentials: Credentials, desk: Desk, **how: Any) -> Any:
    """A node that answers requests."""
    return station(credentials, requests=how.pop("table", TABLE), on_request=desk.answer, **how)


@asynccontextmanager
async def asking(
    cluster: Cluster, role: Role, desk: Desk, **how: Any
) -> AsyncIterator[tuple[Station, AsyncNodeClient]]:
    """A node that answers requests, and somebody who asks it."""
    user = cluster.user_credentials(role)
    async with (
        at_desk(cluster.node_credentials(), desk, **how) as one,
        await connect_async(one.address, user, TABLE) as client,
    ):
        yield one, client


def refused(of: Station) -> dict[str, int]:
    """What a node has refused so far."""
    return of.wire.status().refused


@pytest.mark.parametrize("loop", LOOPS)
def test_many_requests_at_once_each_get_their_own_answer(cluster: Cluster, loop: str) -> None:
    async def story() -> None:
        desk, ann = Desk(), cluster.user_credentials(Role.SUBMIT, f"ann-{loop}")
        limits = WireLimits(requests_at_once=20)
        async with at_desk(cluster.node_credentials(), desk, limits=limits) as one:
            async with await connect_async(one.address, ann, TABLE) as client:
                late = asyncio.ensure_future(client.ask(Wait()))
                answers = await asyncio.gather(*(client.ask(Look(str(number))) for number in range(15)))
                assert answers == [Seen(f"ann-{loop}/submit", str(number)) for number in range(15)]
                assert not late.done()
                desk.go_on.set()
                assert await late == Done()
                assert await client.ask(Submit(bytes(8 << 20))) == Done(8 << 20)
                assert (one.wire.status().users, one.wire.status().nodes) == (1, 0)
            await until(lambda: one.wire.status().users == 0)

    told(story(), loop)


def test_a_blocking_client_asks_one_after_the_other(cluster: Cluster) -> None:
    ann = cluster.user_credentials(Role.SEE)

    def asks(address: str) -> list[str]:
        with connect(address, ann, TABLE) as client:
            return [client.ask(Look(str(number))).what for number in range(3)]

    async def story() -> None:
        async with at_desk(cluster.node_credentials(), Desk()) as one:
            assert await asyncio.to_thread(asks, one.address) == ["0", "1", "2"]

    told(story())


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.SEE, [Look]),
        (Role.SUBMIT, [Look, Submit]),
        (Role.OPERATE, [Look, Submit, Stop]),
        (Role.NODE, [Look]),
    ],
)
def test_each_role_gets_what_it_needs_and_nothing_beyond(cluster: Cluster, role: Role, allowed: list[type]) -> None:
    async def story() -> None:
        desk = Desk()
        who = cluster.node_credentials() if role is Role.NODE else cluster.user_credentials(role)
        async with at_desk(cluster.node_credentials(), desk) as one:
            async with await connect_async(one.address, who, TABLE) as client:
                for request in (Look(), Submit(b"flow"), Stop("app")):
                    if type(request) in allowed:
                        await client.ask(request)
                        continue
                    with pytest.raises(RequestRefused, match=r"which is not enough for this.*ask for a certificate"):
                        await client.ask(request)
            assert [type(request) for request in desk.asked] == allowed
            denied = 3 - len(allowed)
            assert refused(one) == ({Reason.ROLE: denied} if denied else {})

    told(story())


@pytest.mark.parametrize(
    ("what", "told_of"),
    [
        ("trouble", r"^127\.0\.0\.1:\d+: the app 'a' is not known here; see `headwater apps`$"),
        ("typed", r"^127\.0\.0\.1:\d+: no room for the app; stop another first$"),
        ("mistake", r"^127\.0\.0\.1:\d+: internal error: ZeroDivisionError; the node's log says more$"),
    ],
)
def test_errors_come_back_as_errors_and_the_connection_stays(
    cluster: Cluster, what: str, told_of: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with asking(cluster, Role.SEE, Desk()) as (one, client):
            with pytest.raises(RequestRefused, match=told_of) as refusal:
                await client.ask(Look(what))
            assert refusal.value.where == one.address
            assert (await client.ask(Look("more"))).what == "more"

    told(story())
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == (1 if what == "mistake" else 0)


def test_a_request_that_the_node_does_not_know_is_refused_and_others_are_answered(cluster: Cluster) -> None:
    async def story() -> None:
        async with at_desk(cluster.node_credentials(), Desk(), table=SHORT_TABLE) as one:
            async with await connect_async(one.address, cluster.user_credentials(Role.OPERATE), TABLE) as client:
                with pytest.raises(RequestRefused, match="there is no such request; is the node's version ours"):
                    await client.ask(Stop("app"))
                assert (await client.ask(Look("x"))).what == "x"
            assert refused(one) == {Reason.UNKNOWN_REQUEST: 1}

    told(story())


def test_too_many_requests_at_once_are_refused(cluster: Cluster) -> None:
    async def story() -> None:
        desk, limits = Desk(), WireLimits(requests_at_once=2)
        async with asking(cluster, Role.SEE, desk, limits=limits) as (_, client):
            waiting = [asyncio.ensure_future(client.ask(Wait())) for _ in range(2)]
            await until(lambda: len(desk.asked) == 2)
            with pytest.raises(RequestRefused, match="too many requests at once; wait for an answer first"):
                await client.ask(Look())
            desk.go_on.set()
            assert await asyncio.gather(*waiting) == [Done(), Done()]

    told(story())


def test_a_request_without_an_answer_in_time_is_told_so(cluster: Cluster) -> None:
    async def story() -> None:
        async with asking(cluster, Role.SEE, Desk(), limits=WireLimits(request_s=0.01)) as (_, client):
            with pytest.raises(RequestRefused, match=r"Wait was not answered within 0\.01 s; ask again"):
                await client.ask(Wait())

    told(story())


async def asked_without_reading(address: str, times: int) -> asyncio.StreamWriter:
    """Ask for much, and read nothing of it."""
    talk = Conversation(address, insecure_user("ann"), TABLE)
    reader, writer = await asyncio.open_connection(talk.host, talk.port)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(talk.greeting(None) + b"".join(talk.ask(Look("much"))[1] for _ in range(times)))
    return writer


def test_a_user_who_does_not_read_answers_is_parted_with(cluster: Cluster) -> None:
    """No further request is read while answers wait, and after a while the connection ends."""

    async def story() -> None:
        clock, limits = Clock(), WireLimits(requests_at_once=100, requests_of_one=100)
        async with at_desk(cluster.insecure(), Desk(), clock=clock, limits=limits) as one:
            writer = await asked_without_reading(one.address, 20)
            [greedy] = await guests_when(one, lambda guest: guest._is_unread)
            assert not greedy._transport.is_reading()
            clock.advance(10.5)
            one.wire.sweep()
            assert refused(one) == {Reason.UNREAD_ANSWERS: 1}
            clock.advance(2.5)
            one.wire.sweep()
            await until(lambda: one.wire.status().users == 0)
            writer.transport.abort()

    told(story())


def test_answers_that_nobody_reads_have_a_limit_over_all_users(cluster: Cluster) -> None:
    async def story() -> None:
        limits = WireLimits(requests_at_once=100, requests_of_one=100, unread_bytes=4 << 20)
        async with at_desk(cluster.insecure(), Desk(), limits=limits) as one:
            writer = await asked_without_reading(one.address, 50)
            await until(lambda: refused(one) == {Reason.UNREAD_ANSWERS: 1} and one.wire.status().users == 0)
            async with await connect_async(one.address, insecure_user("bob"), TABLE) as client:
                assert (await client.ask(Look("x"))).what == "x"
            writer.transport.abort()

    told(story())


async def guests_when(of: Station, holds: Callable[[Any], bool]) -> list[Any]:
    """Return a node's guests as soon as this holds for one of them."""
    guests = of.wire._house.guests
    await until(lambda: any(holds(guest) for guest in guests))
    return list(guests)


# --- what a client is told --------------------------------------------------------------------------------------------


def test_what_no_node_would_understand_is_not_asked_and_the_reason_is_in_the_request(cluster: Cluster) -> None:
    """A node could only say that it knows no such request, as it does to somebody of another version."""

    async def story() -> None:
        async with asking(cluster, Role.OPERATE, desk := Desk()) as (one, client):
            with pytest.raises(
                ConfigError, match=r"^Stop cannot be asked so: Expected `str`, got `int` - at `\$\.app`$"
            ):
                await client.ask(Stop(7))  # type: ignore[arg-type]  # as somebody does who checks no types
            assert (await client.ask(Look("x"))).what == "x"
            assert (desk.asked, refused(one)) == ([Look("x")], {})

    told(story())


def test_who_asks_over_a_connection_that_has_ended_is_told_why_it_has(cluster: Cluster) -> None:
    def asks(address: str) -> None:
        client = connect(address, insecure_user("ann"), TABLE)
        client.close()
        with pytest.raises(NodeLost, match=rf"the connection to the node at {address} was closed here; make a new one"):
            client.ask(Look())

    async def story() -> None:
        async with at_desk(cluster.insecure(), Desk()) as one:
            await asyncio.to_thread(asks, one.address)

    told(story())


def test_a_node_that_cannot_be_reached_is_told(cluster: Cluster) -> None:
    refused = "cannot be asked: Connection refused: nothing listens there; start the node, or give the address of one"
    with pytest.raises(NodeLost, match=rf"the node at 127\.0\.0\.1:1 {refused} that runs"):
        connect("127.0.0.1:1", insecure_user("ann"), TABLE)
    with pytest.raises(NodeLost, match=r"; is this its address, and can it be reached from here\?$"):
        connect("255.255.255.255:1", cluster.user_credentials(Role.SEE), TABLE)
    with pytest.raises(ConfigError, match="'here' is not the address of a node"):
        connect("here", insecure_user("ann"), TABLE)
    for nobody in ("a..b:7100", "a" * 70 + ".invalid:7100"):
        with pytest.raises(ConfigError, match=r"is not the address of a node; .*1 to 63 characters between dots"):
            connect(nobody, cluster.user_credentials(Role.SEE), TABLE)
    with pytest.raises(ConfigError, match="--insecure works on this machine only"):
        connect("10.0.0.1:7100", insecure_user("ann"), TABLE)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_user_whose_address_has_had_its_share_of_handshakes_is_let_in_a_little_later(
    cluster: Cluster, is_blocking: bool
) -> None:
    """Somebody else floods the node from there; no time passes for the node before it has turned the user away."""
    ann = cluster.user_credentials(Role.SEE)

    def asked(address: str) -> Any:
        with connect(address, ann, TABLE) as client:
            return client.ask(Look("x"))

    async def asked_async(address: str) -> Any:
        async with await connect_async(address, ann, TABLE) as client:
            return await client.ask(Look("x"))

    async def story() -> None:
        clock, limits = Clock(), WireLimits(arrivals_per_s=1)
        async with at_desk(cluster.node_credentials(), Desk(), limits=limits, clock=clock) as one:
            host, _, port = one.address.rpartition(":")
            flood = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
            await until(lambda: refused(one) == {Reason.TOO_FAST: 1})
            asks = asyncio.to_thread(asked, one.address) if is_blocking else asked_async(one.address)
            asking = asyncio.create_task(asks)
            await until(lambda: refused(one)[Reason.TOO_FAST] > 1)
            clock.advance(1.0)
            assert (await asking).what == "x"
            for _, writer in flood:
                writer.transport.abort()


def test_a_client_that_does_not_trust_a_node_hangs_up(cluster: Cluster) -> None:
    """Also while somebody still holds the error."""
    node = cluster.node_credentials()
    denying = cluster.user(Role.SEE)
    (denying / DENIED).write_text(f"{node.identity.id.hex()}\n")
    user = load_credentials(denying)

    def distrusts(address: str) -> None:
        port = int(address.rpartition(":")[2])
        with pytest.raises(NodeLost, match="is not a node of ours") as told:
            connect(address, user, TABLE)
        assert (told.type, connections_to(port)) == (NodeLost, 0)
        with connect(address, load_credentials(cluster.user(Role.SEE)), TABLE) as client:
            assert client.ask(Look("x")).what == "x"
            assert connections_to(port) == 1

    async def story() -> None:
        async with at_desk(node, Desk()) as one:
            await asyncio.to_thread(distrusts, one.address)

    told(story())


def test_a_client_with_a_certificate_of_another_cluster_is_told_what_to_check(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Cluster(tmp_path_factory.mktemp("other"))
    foreign = other.user_credentials(Role.OPERATE)

    async def story() -> None:
        async with at_desk(cluster.node_credentials(), Desk()) as one:
            with pytest.raises(NodeLost, match="it is of another cluster's authority than ours; come with"):
                await connect_async(one.address, foreign, TABLE)
            with pytest.raises(NodeLost, match="it is of another cluster's authority than ours; come with"):
                await asyncio.to_thread(connect, one.address, foreign, TABLE)

    told(story())


def test_a_client_with_a_certificate_is_told_that_a_node_has_none(cluster: Cluster) -> None:
    ann = cluster.user_credentials(Role.SEE)

    async def story() -> None:
        async with at_desk(cluster.insecure(), Desk()) as one:
            with pytest.raises(NodeLost, match="speaks no TLS; it may have been started with --insecure"):
                await connect_async(one.address, ann, TABLE)
            with pytest.raises(NodeLost, match="speaks no TLS; it may have been started with --insecure"):
                await asyncio.to_thread(connect, one.address, ann, TABLE)

    told(story())


def test_an_address_that_a_certificate_does_not_name_is_told_with_what_to_do(cluster: Cluster) -> None:
    ann = cluster.user_credentials(Role.SEE)

    async def story(named: str, dialled: str) -> None:
        async with at_desk(cluster.node_credentials(addresses=(named,)), Desk()) as one:
            address = one.address.replace("127.0.0.1", dialled)
            with pytest.raises(NodeLost) as lost:
                await connect_async(address, ann, TABLE)
            assert f"it does not name {dialled}; use an address that `headwater certs show` lists" in str(lost.value)
            assert f"`headwater certs node --address {dialled}`" in str(lost.value)

    told(story("localhost", "127.0.0.1"))
    told(story("127.0.0.1", "localhost"))


def test_a_node_whose_certificate_has_expired_is_told_with_what_to_check(cluster: Cluster) -> None:
    async def story() -> None:
        async with at_desk(cluster.expired_node(), Desk()) as one:
            with pytest.raises(NodeLost, match="certificate has expired; set the clocks right, or renew it"):
                await connect_async(one.address, cluster.user_credentials(Role.SEE), TABLE)

    told(story())


def test_a_node_that_says_nothing_is_told_with_what_to_check(cluster: Cluster) -> None:
    """Before it has said that we are welcome, it may be anything; later it is busy."""

    async def story() -> None:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        address = "{}:{}".format(*silent.sockets[0].getsockname())
        async with silent, await connect_async(address, insecure_user("ann"), TABLE, answer_s=0.01) as client:
            with pytest.raises(NodeLost, match=r"in time; does its machine run, and do firewalls let port \d+"):
                await client.ask(Look())
        async with asking(cluster, Role.SEE, Desk()) as (_, client):
            await client.ask(Look())
            client._answer_s = 0.01
            with pytest.raises(NodeLost, match="in time; ask again, or another node of its cluster"):
                await client.ask(Wait())

    told(story())


def test_a_client_whose_certificate_has_expired_is_told_what_to_check(cluster: Cluster) -> None:
    async def story() -> None:
        async with at_desk(cluster.node_credentials(), Desk()) as one:
            client = await connect_async(one.address, cluster.expired_node(), TABLE)
            with pytest.raises(NodeLost, match="is our certificate of its cluster, and still valid"):
                await client.ask(Look())
            await client.close()

    told(story())


def test_a_client_is_told_when_the_node_hangs_up(cluster: Cluster) -> None:
    async def story() -> None:
        desk = Desk()
        async with at_desk(cluster.insecure(), desk) as one:
            client = await connect_async(one.address, insecure_user("ann"), TABLE)
            waiting = asyncio.ensure_future(client.ask(Wait()))
            await until(lambda: desk.asked)
        with pytest.raises(NodeLost):
            await waiting
        with pytest.raises(NodeLost):
            await client.ask(Look())
        await client.close()

    told(story())


def test_a_node_without_requests_answers_none(cluster: Cluster) -> None:
    async def story() -> None:
        async with station(cluster.insecure()) as one:
            client = await connect_async(one.address, insecure_user("ann"), TABLE)
            with pytest.raises(NodeLost, match="does not let us in"):
                await client.ask(Look())
            await client.close()

    told(story())


def test_a_request_that_is_none_or_too_long_is_not_even_sent(cluster: Cluster) -> None:
    async def story() -> None:
        desk = Desk()
        async with at_desk(cluster.insecure(), desk) as one:
            async with await connect_async(one.address, insecure_user("ann"), TABLE) as client:
                with pytest.raises(ConfigError, match="Done is not a request"):
                    await client.ask(Done())
                with pytest.raises(RequestRefused, match=r"Submit has \d+ bytes; at most"):
                    await client.ask(Submit(os.urandom(17 << 20)))
                with pytest.raises(RequestRefused, match=r"Submit has \d+ bytes; at most"):
                    await client.ask(Submit(bytes(17 << 20)))  # short on the way, and long when it is unpacked
            assert desk.asked == []

    told(story())
