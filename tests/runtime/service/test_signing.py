"""A flow is built only if a user has signed it who may submit; whatever else comes is refused before it is laid out."""

import contextlib
import datetime as dt
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from headwater.client.flow_text import EndsText, FlowText, built, flow_texts, read_flow
from headwater.client.signing import TEXT_BYTES_MAX, SignedFlow, Trust, UntrustedFlow, signed
from headwater.control.messages.app_messages import FLOW_BYTES_MAX
from headwater.links.credentials import Certified, insecure_user, load_credentials
from headwater.model.errors import FlowError
from headwater.security.authority import open_authority, read_certificate, read_denied
from headwater.security.identity import Role
from tests.links.wires import Cluster as Authority

MARKING: Final = """
from pathlib import Path
import headwater as hw
Path({mark!r}).touch()
flow = hw.flow("marking", hw.read.iterable([1]).sink(hw.to.nothing()))
"""
NOW: Final = dt.datetime.now(dt.UTC)
NOW_US: Final = int(NOW.timestamp() * 1e6)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of a cluster."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Certified:
    """A node's credentials."""
    return authority.node_credentials()


@pytest.fixture(scope="module")
def ann(authority: Authority) -> Certified:
    """A user who may submit."""
    return authority.user_credentials(Role.SUBMIT, "ann")


def changed(encoded: bytes, **fields: object) -> bytes:
    """Return a signed flow of which something was changed."""
    return msgspec.msgpack.encode(msgspec.structs.replace(msgspec.msgpack.decode(encoded, type=SignedFlow), **fields))


def test_what_a_user_has_signed_is_taken_and_the_certificate_says_whose_it_is(node: Certified, ann: Certified) -> None:
    checked = Trust(lambda: node).arrived(signed(b"flow", ann, NOW_US))
    assert checked == (b"flow", ann.identity)


def test_who_operates_may_submit_too(node: Certified, authority: Authority) -> None:
    operator = authority.user_credentials(Role.OPERATE)
    assert Trust(lambda: node).arrived(signed(b"flow", operator, NOW_US)).signer == operator.identity


def of_nobody(authority: Authority) -> bytes:
    """A flow that nobody has signed."""
    return signed(b"flow", insecure_user("ann"), NOW_US)


def of_a_node(authority: Authority) -> bytes:
    """A flow that a node has signed with its own key."""
    return signed(b"flow", authority.node_credentials(), NOW_US)


def of_one_who_sees(authority: Authority) -> bytes:
    """A flow of a user without the role for it."""
    return signed(b"flow", authority.user_credentials(Role.SEE), NOW_US)


def of_another_authority(authority: Authority) -> bytes:
    """A flow of a user of another cluster, who has the same name."""
    other = Authority(authority.directory / "elsewhere")
    return signed(b"flow", other.user_credentials(Role.OPERATE, "ann"), NOW_US)


def of_one_whom_a_node_vouches_for(authority: Authority) -> bytes:
    """A flow of a user whose certificate a node has signed, as if it were the authority."""
    bundle, home = authority.node(), authority.directory / "forged"
    home.mkdir()
    for theirs, ours in (("node.key", "ca.key"), ("node.pem", "ca.pem")):
        (home / ours).write_bytes((bundle / theirs).read_bytes())
    return signed(b"flow", load_credentials(open_authority(home).issue_user("eve", Role.OPERATE)), NOW_US)


def expired(authority: Authority) -> bytes:
    """A flow that was signed now with a certificate of last month."""
    then = NOW - dt.timedelta(days=30)
    return signed(b"flow", load_credentials(authority.user(Role.SUBMIT, days=1, now=then), now=then), NOW_US)


def too_early(authority: Authority) -> bytes:
    """A flow that was signed before its certificate was made."""
    return signed(b"flow", authority.user_credentials(Role.SUBMIT), NOW_US - 3 * 86_400_000_000)


def altered(authority: Authority) -> bytes:
    """A flow that is not as it was signed."""
    return changed(signed(b"flow", authority.user_credentials(Role.SUBMIT), NOW_US), flow=b"evil")


def redated(authority: Authority) -> bytes:
    """A flow that was signed at another time than is said."""
    return changed(signed(b"flow", authority.user_credentials(Role.SUBMIT), NOW_US), at_us=NOW_US + 1)


def under_anothers_name(authority: Authority) -> bytes:
    """A flow that a node has signed and says it is a user's, whose certificate it has seen."""
    theirs = msgspec.msgpack.decode(signed(b"", authority.user_credentials(Role.SUBMIT), 0), type=SignedFlow)
    return changed(of_a_node(authority), certificate=theirs.certificate)


def with_the_authoritys_own(authority: Authority) -> bytes:
    """A flow with the one certificate that everybody has."""
    return changed(of_a_node(authority), certificate=authority.authority.certificate.public_bytes(Encoding.DER))


def without_sense(authority: Authority) -> bytes:
    """A flow with bytes for a certificate."""
    return msgspec.msgpack.encode(SignedFlow(b"flow", NOW_US, b"certificate", b"signature"))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (of_nobody, "no user has signed"),
        (of_a_node, r"node n\d+ \(\w+\) has signed a flow and may not submit any"),
        (of_one_who_sees, r"user n\d+ \(\w+\) has signed a flow and may not submit any; .* role 'submit'"),
        (of_another_authority, "not of this cluster's authority"),
        (of_one_whom_a_node_vouches_for, "not of this cluster's authority"),
        (expired, r"has signed a flow on .*, and the certificate counts from .* until .*; renew it"),
        (too_early, "look at the clock"),
        (altered, "has not signed the flow that came in their name: it was altered"),
        (redated, "has not signed the flow"),
        (under_anothers_name, "has not signed the flow"),
        (with_the_authoritys_own, "not of this cluster's authority"),
        (without_sense, "not of this cluster's authority"),
    ],
)
def test_what_does_not_count_is_refused_with_who_and_what_to_do(
    authority: Authority, node: Certified, made: Callable[[Authority], bytes], why: str
) -> None:
    with pytest.raises(UntrustedFlow, match=why) as refusal:
        Trust(lambda: node).arrived(made(authority))
    assert "; " in str(refusal.value)  # what to do


def test_a_signature_is_for_one_flow_and_for_nothing_else(node: Certified, ann: Certified) -> None:
    """Neither over another flow, nor made for another purpose with the same key."""
    ours, other = (signed(flow, ann, NOW_US) for flow in (b"flow", b"other"))
    taken = msgspec.msgpack.decode(other, type=SignedFlow)
    certificate, for_another_purpose = ann.sign(NOW_US.to_bytes(8, "big") + b"flow")
    for signature in (taken.signature, for_another_purpose):
        with pytest.raises(UntrustedFlow, match="has not signed"):
            Trust(lambda: node).arrived(changed(ours, certificate=certificate, signature=signature))


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # of which a bit was turned
def test_no_bit_of_what_was_signed_can_be_another(node: Certified, ann: Certified) -> None:
    """Only the form of the authority's signature may differ: unused bits of it, which nobody has signed."""
    trust, ours = Trust(lambda: node), signed(b"flow", ann, NOW_US)
    form = ours.index(read_certificate(ann.directory / "user.pem").signature) - 1
    for place, bit in itertools.product(range(len(ours)), range(8)):
        turned = ours[:place] + bytes([ours[place] ^ 1 << bit]) + ours[place + 1 :]
        if place == form:
            with contextlib.suppress(FlowError):
                assert trust.arrived(turned) == (b"flow", ann.identity)
        else:
            with pytest.raises(FlowError):
                trust.arrived(turned)


def test_who_is_denied_brings_nothing_new_and_what_is_kept_goes_on(authority: Authority) -> None:
    """The list counts as it is now: a node reads it again while it runs."""
    ours, node = authority.user_credentials(Role.SUBMIT), authority.node_credentials()
    flow = signed(b"flow", ours, NOW_US)
    trust = Trust(lambda: node)
    assert trust.arrived(flow).signer == ours.identity
    (node.directory / "denied").write_text(f"{ours.identity.id.hex()}\n")
    assert read_denied(node.directory / "denied") == {ours.identity.id}
    fresh = node.reloaded()
    assert fresh is not None
    node = fresh
    with pytest.raises(UntrustedFlow, match="is on the deny list; let another user submit it"):
        trust.arrived(flow)
    assert trust.kept(flow).flow == b"flow"


def test_who_reads_what_runs_believes_no_node_but_a_user_though_they_are_denied_since(
    authority: Authority, node: Certified, ann: Certified
) -> None:
    """What is read there is signed again; that its signer is denied is a reason to do so."""
    reader = authority.user_credentials(Role.OPERATE)
    (reader.directory / "denied").write_text(f"{ann.identity.id.hex()}\n")
    reader = load_credentials(reader.directory)
    assert Trust(lambda: reader).running(signed(b"flow", ann, NOW_US)).signer == ann.identity
    for flow in (signed(b"flow", node, NOW_US), signed(b"flow", insecure_user("ann"), NOW_US)):
        with pytest.raises(UntrustedFlow):
            Trust(lambda: reader).running(flow)


def test_a_certificate_that_has_expired_since_counts_for_what_was_signed_before(
    authority: Authority, node: Certified
) -> None:
    """Apps run for longer than people's certificates, and move to nodes that have not seen them yet."""
    then = NOW - dt.timedelta(days=30)
    user = load_credentials(authority.user(Role.SUBMIT, days=1, now=then), now=then)
    flow = signed(b"flow", user, int(then.timestamp() * 1e6))
    assert Trust(lambda: node).arrived(flow).signer == user.identity


def test_while_an_authority_is_replaced_the_users_of_both_count(authority: Authority, ann: Certified) -> None:
    other = Authority(authority.directory / "next")
    bundle = other.node()
    with (bundle / "ca.pem").open("ab") as file:
        file.write((authority.authority.directory / "ca.pem").read_bytes())
    trust = Trust(lambda: load_credentials(bundle))
    for user in (ann, other.user_credentials(Role.SUBMIT, "ann")):
        assert trust.arrived(signed(b"flow", user, NOW_US)).signer == user.identity


def test_without_certificates_nothing_is_signed_and_nobody_asks_for_it(authority: Authority) -> None:
    trust = Trust(authority.insecure)
    flow = signed(b"flow", insecure_user("ann"), NOW_US)
    assert msgspec.msgpack.decode(flow, type=SignedFlow) == SignedFlow(b"flow", NOW_US)
    assert trust.arrived(flow) == trust.kept(flow) == (b"flow", None)


DEEP = b"\x91" * 100_000 + b"\xc0"  # a list in a list in a list
NO_FLOWS = [b"", b"flow", msgspec.msgpack.encode({"flow": b"x"}), msgspec.msgpack.encode([1])]


@pytest.mark.parametrize("sent", [*NO_FLOWS, DEEP, b"\x95\xc4\x01x\x00\xc4\x00\xc4\x00" + DEEP])
def test_what_is_no_flow_at_all_is_refused(node: Certified, sent: bytes) -> None:
    for look in (Trust(lambda: node).arrived, Trust(lambda: node).kept):
        with pytest.raises(FlowError, match="is no flow"):
            look(sent)


@pytest.mark.parametrize("signed_for", [*NO_FLOWS, DEEP, b"\x81\xa5other" + DEEP])
def test_what_a_user_has_signed_and_is_no_flow_is_refused(signed_for: bytes) -> None:
    with pytest.raises(FlowError, match="is no flow"):
        read_flow(signed_for)


def test_everything_that_comes_with_a_flow_is_limited(node: Certified, ann: Certified) -> None:
    """The longest text there is still travels, signed."""
    longest = signed(bytes(TEXT_BYTES_MAX), ann, NOW_US)
    assert len(longest) <= FLOW_BYTES_MAX
    assert len(Trust(lambda: node).arrived(longest).flow) == TEXT_BYTES_MAX
    small = SignedFlow(b"", 0, b"c", b"s")
    for much in ({"flow": bytes(TEXT_BYTES_MAX + 1)}, {"certificate": bytes(4_096)}, {"signature": bytes(200)}):
        with pytest.raises(FlowError, match="is no flow"):
            Trust(lambda: node).arrived(msgspec.msgpack.encode(msgspec.structs.replace(small, **much)))
    for at_us in (-1, 1 << 60):
        with pytest.raises(FlowError, match="is no flow"):
            Trust(lambda: node).arrived(msgspec.msgpack.encode([b"", at_us, b"c", b"s"]))


# --- building ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def marking(tmp_path: Path) -> tuple[FlowText, Path]:
    """A flow, and a file that is there once its code has run."""
    mark, file = tmp_path / "mark", tmp_path / "marking.py"
    file.write_text(MARKING.format(mark=str(mark)))
    [text] = flow_texts(str(file))
    mark.unlink()  # it has run here: we are its user
    return text, mark


def test_a_signed_flow_is_built(
    node: Certified, ann: Certified, marking: tuple[FlowText, Path], tmp_path: Path
) -> None:
    text, mark = marking
    with built(signed(text.encode(), ann, NOW_US), tmp_path / "flows", Trust(lambda: node).arrived) as graph:
        assert graph.name == "marking"
    assert mark.exists()


def test_the_text_of_a_flow_is_laid_out_for_the_nodes_own_user_alone(
    node: Certified, ann: Certified, marking: tuple[FlowText, Path], tmp_path: Path
) -> None:
    """There may be passwords in it, and others have accounts on the machine."""
    flows = tmp_path / "data" / "flows"
    with built(signed(marking[0].encode(), ann, NOW_US), flows, Trust(lambda: node).arrived):
        assert [path.name for path in flows.rglob("*.py")] == ["marking.py"]
        assert flows.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("chaining", [True, False])
def test_a_flow_is_built_with_or_without_chains_as_its_user_wanted(
    node: Certified, ann: Certified, tmp_path: Path, chaining: bool
) -> None:
    [text] = flow_texts("debs2015.frequent_routes", EndsText(rows=1), chaining=chaining)
    with built(signed(text.encode(), ann, NOW_US), tmp_path / "flows", Trust(lambda: node).arrived) as graph:
        assert [chain.name for chain in graph.chains] == (
            ["read → routes → top-ten"] if chaining else ["read", "routes", "top-ten"]
        )


def test_of_a_flow_that_is_refused_nothing_is_laid_out_and_nothing_runs(
    node: Certified, ann: Certified, marking: tuple[FlowText, Path], tmp_path: Path
) -> None:
    text, mark = marking
    theirs = signed(b"another", ann, NOW_US)
    for sent in (signed(text.encode(), node, NOW_US), changed(theirs, flow=text.encode())):
        with pytest.raises(UntrustedFlow), built(sent, tmp_path / "flows", Trust(lambda: node).arrived):
            pass
    assert not mark.exists()
    assert not (tmp_path / "flows").exists()
