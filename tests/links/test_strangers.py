"""Whoever does not belong here is refused, counted and told as little as can be; the node goes on working."""

import asyncio
import datetime as dt
import logging
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.links.credentials import load_credentials
from headwater.links.outgoing import DropReason
from headwater.links.refusals import Reason, Refusals
from headwater.links.speech import VERSION, Greeting, Refusal, Welcome
from headwater.model.peers import Peer
from headwater.overlay.messages import Heartbeat
from headwater.security.authority import Authority, make_authority, open_authority
from headwater.security.identity import Role
from tests.links.guests import assert_it_works, guest, refused
from tests.links.wires import LOOPS, Clock, Cluster, station, told, until

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


def of_a_namesake(cluster: Cluster) -> ssl.SSLContext:
    """A node's certificate of an authority that has our authority's name, and another key."""
    other = make_authority(cluster.directory / f"namesake{os.urandom(4).hex()}")
    namesake = Authority(other.directory, cluster.authority.certificate, other.key)
    context = naked(cluster)
    bundle = namesake.issue_node("evil", ["127.0.0.1"])
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
        (of_a_namesake, Reason.FOREIGN_CERTIFICATE),
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


def test_certificates_that_are_away_for_a_while_change_nothing_and_are_read_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever copies new ones there may well delete the old ones first."""

    async def story() -> None:
        home = cluster.node("copied")
        async with station(load_credentials(home)) as one, station(cluster.node_credentials()) as friend:
            for name in ("ca.pem", "node.pem", "node.key"):
                (home / name).rename(home / "away")
                assert not one.wire.reload()
                assert "cannot be read" in caplog.text or "holds neither" in caplog.text
                caplog.clear()
                (home / "away").rename(home / name)
                await assert_it_works(one, friend)
            cluster.authority.renew("copied", days=300)
            assert one.wire.reload()

    told(story())


def test_a_node_at_another_address_than_in_its_certificate_is_not_spoken_to(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a stolen key would do to stand in for any node."""

    async def story() -> None:
        elsewhere = cluster.node_credentials(addresses=("10.9.8.7",))
        async with station(cluster.node_credentials()) as one, station(elsewhere) as other:
            one.ping(other, 0)
            await until(lambda: "it does not name 127.0.0.1; use an address that" in caplog.text)
            assert other.heard == []

    told(story())


def test_users_cannot_stand_in_for_nodes(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        fake = cluster.user_credentials(Role.OPERATE).accepting()
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=fake)
        async with station(cluster.node_credentials()) as one:
            one.ping(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 0)
            await until(lambda: "no connection to" in caplog.text)
            assert "certificate is not to be trusted: it is not one for nodes" in caplog.text
        server.close()

    told(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_node_that_dials_one_of_another_cluster_or_without_certificates_says_what_to_do(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    async def story() -> None:
        foreign = Cluster(tmp_path).node_credentials()
        async with (
            station(cluster.node_credentials()) as one,
            station(foreign) as other,
            station(cluster.insecure()) as bare,
        ):
            one.ping(other, 0)
            await until(lambda: "another cluster's authority than ours; come with certificates of its" in caplog.text)
            one.ping(bare, 0)
            await until(lambda: "speaks no TLS; it may have been started with --insecure" in caplog.text)

    told(story(), loop)


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
            assert other.wire.status().dropped[DropReason.UNREACHABLE] >= 20

    told(story())
