"""A node in wrong hands, among real nodes with certificates: it may say what it likes, and no code of its own runs."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest

from headwater.client.cluster import Cluster
from headwater.client.connection import connect
from headwater.client.flow_text import FlowText, flow_texts
from headwater.client.questions import (
    Adopt,
    FlowHere,
    KeepAccount,
    QuestionKind,
    SubmitHere,
    UpgradeHere,
    Whereabouts,
)
from headwater.client.requests import REQUESTS, FlowTold, GetFlow, StopApp, Submit, UpgradeApp
from headwater.client.signing import WISH_AGE_MAX, Checked, SignedFlow, Trust, signed, signed_wish
from headwater.control.messages.app_messages import AnyNodeMessage, ChainSpec, StartAsked
from headwater.control.messages.peer_questions import Answer
from headwater.engine.ledger import Ledger
from headwater.links.credentials import Certified, Credentials, insecure_user, load_credentials
from headwater.links.refusals import Reason
from headwater.links.requests import RequestRefused
from headwater.links.wire import Wire, WireConfig
from headwater.model.peers import NodeId, Peer
from headwater.runtime.service.questioner import Asking, QuestionRefused
from headwater.runtime.service.service import NodeService
from headwater.security.identity import Role
from headwater.workers.clock import now_us
from tests.links.wires import Cluster as Authority
from tests.links.wires import told, until
from tests.runtime.flows import by_sensor, expected_sums
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes
from tests.runtime.service.sums import rows_of, write_sums

COUNTING: Final = """
import headwater as hw
{first}
made = hw.read.generator(lambda first, count: {{"n": list(range(first, first + count))}}, rows=10**9, rate=500)
flow = hw.flow("counting", made.sink(hw.to.json({out!r}), name="out"))
"""
US: Final = dt.timedelta(microseconds=1)
CHAIN: Final = ChainSpec("chain", 1, 0, (0,))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The authority of a cluster."""
    return Authority(tmp_path / "authority")


@pytest.fixture
def few(tmp_path: Path, authority: Authority) -> Iterator[FewNodes]:
    """Two nodes with certificates."""
    with FewNodes(tmp_path / "nodes", authority.node) as few:
        few.add()
        few.add()
        yield few


class Texts:
    """Two versions of a flow: what a user wrote, and what somebody else would rather have run, which leaves a mark."""

    def __init__(self, directory: Path) -> None:
        """Write both."""
        self.mark = directory / "mark"
        self.file = directory / "counting.py"
        self._out = str(directory / "counted.json")
        self.evil = self._text(f"from pathlib import Path\nPath({str(self.mark)!r}).touch()")
        self.mark.unlink()
        self.good = self._text("")

    def _text(self, first: str) -> FlowText:
        self.file.write_text(COUNTING.format(first=first, out=self._out))
        [text] = flow_texts(str(self.file))
        return text


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    """Two versions of a flow."""
    return Texts(tmp_path)


def signed_by(user: Credentials, text: FlowText) -> bytes:
    """Return a flow with a signature of now."""
    return signed(text.encode(), user, now_us())


def instead(user: Certified, texts: Texts) -> bytes:
    """Return a flow that a user signed, with another one in its place."""
    theirs = msgspec.msgpack.decode(signed_by(user, texts.good), type=SignedFlow)
    return msgspec.msgpack.encode(msgspec.structs.replace(theirs, flow=texts.evil.encode()))


class Intruder:
    """Somebody who has a node's certificate, has joined no ring, and says what they like."""

    def __init__(self, credentials: Certified) -> None:
        """Have a wire of their own."""
        self.wire = Wire(WireConfig(listen="127.0.0.1:0"), credentials, on_message=self._hear, rng=Random(1))
        self.own = Peer(self.wire.node_id, self.wire.address, "nowhere")
        self._asking = Asking(self.own, self.wire.send, self._answer, Random(2))

    def _hear(self, sender: NodeId, message: AnyNodeMessage) -> None:
        if isinstance(message, Answer):
            self._asking.hear(message)

    async def _answer(self, asker: Peer, question: QuestionKind) -> Any:
        raise AssertionError("nobody asks an intruder")

    async def __aenter__(self) -> "Intruder":
        """Begin to speak."""
        self.wire.start()
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Say what is left to say, and hang up."""
        await self.wire.close(PATIENCE_S)

    async def ask(self, node: NodeService, question: QuestionKind) -> Any:
        """Ask a node something, and return its answer."""
        return await self._asking.ask(node.own, question)

    async def refused(self, node: NodeService, question: QuestionKind) -> str:
        """Ask a node for something that it refuses, and return its sentence."""
        with pytest.raises(QuestionRefused) as refusal:
            await self.ask(node, question)
        return str(refusal.value)

    def start(self, node: NodeService, app: str, flow: bytes) -> None:
        """Have a node run an instance of an app, and read a source."""
        for instance in (0, -1):
            asked = StartAsked(self.own, app, 1, instance, CHAIN, node.own, flow, self.own.id)
            self.wire.send(node.own.address, asked)


def called(why: str) -> str:
    """An app that is called by what is wrong with it."""
    return why.replace(" ", "-")


def test_a_node_by_itself_has_no_code_run_on_others(few: FewNodes, authority: Authority, texts: Texts) -> None:
    """Whatever it asks for: unsigned, signed by itself, or with the signature that a user gave to something else."""
    ann, evil, owner = authority.user_credentials(Role.SUBMIT, "ann"), authority.node_credentials(), few.nodes[0]
    forged = {
        "no user has signed": signed_by(insecure_user("ann"), texts.evil),
        "may not submit any": signed_by(evil, texts.evil),
        "has not signed the flow": instead(ann, texts),
    }

    async def story(app: str) -> None:
        async with Intruder(evil) as intruder:
            for why, flow in forged.items():
                for wanted in (
                    SubmitHere(flow, "ann", {}),
                    UpgradeHere(app, flow, (), {}, 10.0, only_check=True),
                    UpgradeHere(app, flow, (), {}, 10.0, only_check=False),
                    Adopt("counting@0000e411", owner.own.id, flow, app, (), takes_rows=False, only_check=True),
                    Adopt("counting@0000e411", owner.own.id, flow, app, (), takes_rows=False),
                ):
                    assert why in await intruder.refused(owner, wanted)
                intruder.start(owner, called(why), flow)

    with Cluster(owner.own.address, certs=ann.directory) as cluster:
        [app] = cluster.submit(texts.file)
        while cluster.status("counting").rows_out == 0:
            pass
        told(story(app.id))
        few.wait_until(lambda: set(owner.plant.troubles.apps()) == set(map(called, forged)))
        for why in forged:
            assert why in " ".join(owner.plant.troubles.of(called(why), now_us()))
        status, [line] = cluster.status("counting"), cluster.apps().apps
        [refused] = [node.refused for node in cluster.nodes().nodes if node.address == owner.own.address]
    assert not texts.mark.exists()
    assert (line.id, line.submitter, status.state, status.notes) == (app.id, "ann", "running", [])
    assert refused[Reason.UNTRUSTED_FLOW] == 5 * len(forged)


def test_what_a_node_makes_up_of_an_app_is_not_kept(
    few: FewNodes, authority: Authority, texts: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither accounts of its own, nor what the flow does not have: said so, in a sentence, and the app goes on."""
    ann, owner = authority.user_credentials(Role.SUBMIT, "ann"), few.nodes[0]
    long = Ledger(0, 0, 0, 0, 0, dropped={f"reason {number}": 1 for number in range(1_000)})

    async def story(app: str, flow: bytes) -> None:
        async with Intruder(authority.node_credentials()) as intruder:
            assert "is too long" in await intruder.refused(owner, KeepAccount(app, "store", long))
            await intruder.ask(owner, KeepAccount(app, "store", Ledger(7, 0, 0, 0, 0)))
            for instance in (99, -99):
                asked = StartAsked(intruder.own, app, 1 << 60, instance, CHAIN, owner.own, flow, owner.own.id)
                intruder.wire.send(owner.own.address, asked)
            await until(lambda: len(owner.plant.troubles.of(app, now_us())) == 2)

    with Cluster(owner.own.address, certs=ann.directory) as cluster:
        [app] = cluster.submit(texts.file)
        while cluster.status("counting").rows_out == 0:
            pass
        told(story(app.id, signed_by(ann, texts.good)))
        assert all("the flow has no instance or source" in one for one in owner.plant.troubles.of(app.id, now_us()))
        assert owner.keeping.owned[app.id].accounts == {}
        before = cluster.status("counting").rows_out
        while cluster.status("counting").rows_out == before:
            pass
    assert not any(record.exc_info for record in caplog.records)


def test_whose_app_it_is_says_the_certificate_and_not_a_node(few: FewNodes, authority: Authority, texts: Texts) -> None:
    """A flow that somebody has signed can be brought again by a node that has seen it, and stays theirs."""
    ann, bob = (authority.user_credentials(Role.SUBMIT, name) for name in ("ann", "bob"))
    evil, owner = authority.node_credentials(), few.nodes[0]

    async def story() -> None:
        async with Intruder(evil) as intruder:
            await intruder.ask(owner, SubmitHere(signed_by(ann, texts.good), "bob", {}))

    told(story())
    with Cluster(few.nodes[1].own.address, certs=bob.directory) as cluster:
        assert [app.submitter for app in cluster.apps().apps] == ["ann"]
        assert cluster.status("counting").submitter == "ann"
        with pytest.raises(RequestRefused, match="submitted by 'ann', not by 'bob'"):
            cluster.stop("counting")


def test_nobody_brings_what_another_has_signed(few: FewNodes, authority: Authority, texts: Texts) -> None:
    ann, bob = (authority.user_credentials(Role.OPERATE, name) for name in ("ann", "bob"))
    address, flow = few.nodes[0].own.address, signed_by(ann, texts.good)
    with connect(address, bob, REQUESTS) as client:
        for wanted in (Submit(flow), UpgradeApp("counting", flow)):
            with pytest.raises(RequestRefused, match="'bob' brings a flow that 'ann' has signed"):
                client.ask(wanted)
        with pytest.raises(RequestRefused, match="no user has signed"):
            client.ask(Submit(signed_by(insecure_user("bob"), texts.good)))


def test_what_users_are_refused_for_who_they_are_is_counted_and_logged_with_their_address(
    few: FewNodes, authority: Authority, texts: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    """Where they asked, which need not be where the app is: somebody tries out what a certificate is good for."""
    ann, bob = (authority.user_credentials(Role.SUBMIT, name) for name in ("ann", "bob"))
    with Cluster(few.nodes[0].own.address, certs=ann.directory) as cluster:
        cluster.submit(texts.file)
    asked, mine = few.nodes[1], signed_by(bob, texts.good)
    with connect(asked.own.address, bob, REQUESTS) as client:
        for wanted in (
            StopApp("counting"),
            GetFlow("counting", signed_wish("counting", bob, now_us())),
            UpgradeApp("counting", mine),
        ):
            with pytest.raises(RequestRefused, match="submitted by 'ann', not by 'bob'"):
                client.ask(wanted)
        for flow, why in ((instead(bob, texts), "has not signed"), (signed_by(ann, texts.good), "'bob' brings")):
            with pytest.raises(RequestRefused, match=why):
                client.ask(Submit(flow))
    assert asked.wire.status().refused == {Reason.ROLE: 3, Reason.UNTRUSTED_FLOW: 2}
    refusals = [one.getMessage() for one in caplog.records if "refused user bob" in one.getMessage()]
    assert len(refusals) == 5
    assert all(" at 127.0.0.1:" in one for one in refusals)
    assert not any(texts.file.read_text()[:20] in one for one in refusals)


def test_whose_app_may_be_stopped_says_its_owner_and_not_who_keeps_its_name(
    few: FewNodes, authority: Authority, texts: Texts
) -> None:
    """Whoever keeps a name may have heard of an app that has ended since, or of one that never was."""
    ann, bob = (authority.user_credentials(Role.SUBMIT, name) for name in ("ann", "bob"))
    owner = few.nodes[0]
    with Cluster(owner.own.address, certs=ann.directory) as cluster:
        [app] = cluster.submit(texts.file)
        former = Whereabouts("counting", "counting@00000000", owner.own, "bob")
        assert few.do(owner.directory.publish(former, app.id)) == former
        with (
            Cluster(few.nodes[1].own.address, certs=bob.directory) as of_bob,
            pytest.raises(RequestRefused, match="submitted by 'ann', not by 'bob'"),
        ):
            of_bob.stop("counting")
        assert [one.id for one in cluster.apps().apps] == [app.id]
        assert owner.wire.status().refused == {Reason.ROLE: 1}
        cluster.stop(app.id)
        assert cluster.apps().apps == []


def test_neither_submitted_nor_upgraded_is_what_somebody_signed_who_may_not(
    few: FewNodes, authority: Authority, texts: Texts, tmp_path: Path
) -> None:
    """A node that brings it for them changes nothing; who operates may upgrade any app, which stays its submitter's."""
    ann, bob, gone = (authority.user_credentials(Role.SUBMIT, name) for name in ("ann", "bob", "gone"))
    operator, seer = (authority.user_credentials(role) for role in (Role.OPERATE, Role.SEE))
    stranger = Authority(tmp_path / "elsewhere").user_credentials(Role.OPERATE, "ann")
    then = dt.datetime.now(dt.UTC) - dt.timedelta(days=30)
    former = load_credentials(authority.user(Role.OPERATE, days=1, now=then), now=then)
    owner = few.nodes[0]
    few.deny(gone.identity.id)

    async def story() -> None:
        async with Intruder(authority.node_credentials()) as intruder:
            for user, why in (
                (seer, "may not submit any"),
                (gone, "is on the deny list"),
                (stranger, "not of this cluster's authority"),
                (former, "renew it"),
            ):
                flow = signed_by(user, texts.good)
                assert why in await intruder.refused(owner, SubmitHere(flow, "ann", {}))
                assert why in await intruder.refused(owner, UpgradeHere("counting", flow, (), {}, 10.0, False))
            of_bob = UpgradeHere("counting", signed_by(bob, texts.good), (), {}, 10.0, False)
            assert "signed by 'bob'" in await intruder.refused(owner, of_bob)
            assert owner.wire.status().refused[Reason.ROLE] == 1

    with Cluster(owner.own.address, certs=ann.directory) as cluster:
        cluster.submit(texts.file)
        while cluster.status("counting").rows_out == 0:
            pass
    told(story())
    with Cluster(owner.own.address, certs=operator.directory) as cluster:
        assert cluster.status("counting").version == 1
        after = cluster.upgraded(cluster.upgrade("counting", texts.file))
    assert (after.version, after.submitter) == (2, "ann")


def test_an_app_of_a_user_who_is_denied_goes_on_where_it_is_also_after_a_restart(
    few: FewNodes, authority: Authority, tmp_path: Path
) -> None:
    """What a node keeps it has looked at when it came; what comes anew of that user is refused."""
    ann, operator = authority.user_credentials(Role.SUBMIT, "ann"), authority.user_credentials(Role.OPERATE)
    out, owner = tmp_path / "out.json", few.nodes[0].own.address
    file = write_sums(tmp_path, "sums", out, 6_000, rate=1_500)
    with Cluster(owner, certs=ann.directory) as cluster:
        cluster.submit(file, at={"made": few.nodes[1].own.address})
        while cluster.status("sums").rows_out < 1_000:
            pass
    few.deny(ann.identity.id)
    for number in (0, 1):
        few.stop(number)
        few.restart(number)
    with Cluster(owner, certs=operator.directory) as cluster:
        status = cluster.wait("sums", PATIENCE_S)
    assert (status.submitter, status.is_balanced, status.errors) == ("ann", True, [])
    assert by_sensor(rows_of(out)) == expected_sums(6_000)
    [text] = flow_texts(str(file))

    async def story() -> None:
        async with Intruder(authority.node_credentials()) as intruder:
            for node in few.nodes:
                flow = signed_by(ann, text)
                assert "is on the deny list" in await intruder.refused(node, SubmitHere(flow, "ann", {}))
                intruder.start(node, "late", flow)

    told(story())
    for node in few.nodes:
        few.wait_until(lambda node=node: "late" in node.plant.troubles.apps())  # type: ignore[misc]
        assert "is on the deny list" in " ".join(node.plant.troubles.of("late", now_us()))


def test_a_flow_is_shown_to_who_may_replace_it_and_to_no_node_by_itself(
    few: FewNodes, authority: Authority, texts: Texts
) -> None:
    """There may be passwords in it: who only sees, or has other apps, does not read it, and a node asks for a user."""
    ann, bob = (authority.user_credentials(Role.SUBMIT, name) for name in ("ann", "bob"))
    seer, operator, evil = (authority.user_credentials(role) for role in (Role.SEE, Role.OPERATE, Role.OPERATE))
    owner, node, long_ago = few.nodes[0], authority.node_credentials(), now_us() - 2 * WISH_AGE_MAX // US
    few.deny(evil.identity.id)

    async def story() -> None:
        async with Intruder(node) as intruder:
            for user, app, at_us, why in (
                (node, "counting", now_us(), "may not submit any"),
                (insecure_user("ann"), "counting", now_us(), "no user has signed"),
                (evil, "counting", now_us(), "is on the deny list"),
                (bob, "counting", now_us(), "submitted by 'ann', and its flow is asked for by 'bob'"),
                (ann, "other", now_us(), "has not asked for the flow of counting now"),
                (ann, "counting", long_ago, "has not asked for the flow of counting now"),
            ):
                assert why in await intruder.refused(owner, FlowHere("counting", signed_wish(app, user, at_us)))
            submitted = FlowHere("counting", signed_by(ann, texts.good))
            assert "has not signed" in await intruder.refused(owner, submitted)

    with Cluster(owner.own.address, certs=ann.directory) as cluster:
        cluster.submit(texts.file)
    told(story())
    address = few.nodes[1].own.address
    for user, why in ((seer, "has the role 'see'"), (bob, "submitted by 'ann', not by 'bob'")):
        with pytest.raises(RequestRefused, match=why):
            shown_to(user, address)
    for user in (ann, operator):
        assert shown_to(user, address) == (texts.good.encode(), ann.identity)


def shown_to(user: Certified, address: str) -> Checked:
    """Return the flow of an app as a user reads it."""
    with connect(address, user, REQUESTS) as client:
        shown: FlowTold = client.ask(GetFlow("counting", signed_wish("counting", user, now_us())))
    return Trust(lambda: user).running(shown.flow)
