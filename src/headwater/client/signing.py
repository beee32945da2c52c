"""Signatures of flows: the user who submits a flow signs it, and every node verifies that before it builds anything.

Nodes pass flows on to one another, and a node may be compromised. So a node's word on who wrote a flow does not count:
the signature travels with the flow and is stored with it, and code runs only if a user has signed it who may submit.
Nodes without certificates trust everyone, and neither sign nor verify.

The signature says that a user wanted this flow, and when. It does not say where, as which app or how often: whoever has
a signed flow can replay it, but can run no other.

To upgrade an app a user first reads its flow, with the passwords in it. That request is signed too, so that a
compromised node which no user has asked cannot fetch the flows of other apps.
"""

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Meta

from headwater.control.messages.app_messages import FLOW_BYTES_MAX
from headwater.links.credentials import Credentials
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import FlowError
from headwater.security.identity import Identity, NobodyKnown, Role, identity_in

SIGNING_BYTES: Final = 4_096  # reserved for the certificate and the signature beside a flow
TEXT_BYTES_MAX: Final = FLOW_BYTES_MAX - SIGNING_BYTES
_CERTIFICATE_BYTES_MAX: Final = 3_072  # ours have about 600
_SIGNATURE_BYTES_MAX: Final = 128  # 72 for P-256
_AT_US_END: Final = 1 << 57  # in the year 6537; a date of Python ends in 9999
_MEANING: Final = (
    b"headwater: I submit this flow\0"  # domain separation: what the key signs elsewhere, as in TLS, begins otherwise
)
_WISH: Final = b"headwater: I want to read the flow of this app\0"
WISH_AGE_MAX: Final = dt.timedelta(hours=1)  # clocks differ; so long a wish can be replayed, for the same app
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    x509.InvalidVersion,
    UnsupportedAlgorithm,
)  # that foreign bytes may raise
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class UntrustedFlow(FlowError):
    """A flow has no valid signature of a user who may submit."""


class SignedFlow(msgspec.Struct, frozen=True, array_like=True):
    """A flow as it travels and is stored; without certificates it has no signature."""

    flow: Annotated[bytes, Meta(max_length=TEXT_BYTES_MAX)]
    at_us: Annotated[int, Meta(ge=0, lt=_AT_US_END)] = 0  # by the signer's clock
    certificate: Annotated[bytes, Meta(max_length=_CERTIFICATE_BYTES_MAX)] = b""  # DER, of the signer
    signature: Annotated[bytes, Meta(max_length=_SIGNATURE_BYTES_MAX)] = b""

    @property
    def at(self) -> dt.datetime:
        """The time of the signature, by the signer's clock."""
        return _EPOCH + dt.timedelta(microseconds=self.at_us)


class Checked(NamedTuple):
    """A flow that may be built, and its signer; None without certificates, or if it was checked on arrival."""

    flow: bytes
    signer: Identity | None


Check = Callable[[bytes], Checked]


def signed(flow: bytes, credentials: Credentials, at_us: int) -> bytes:
    """Return a flow signed with these credentials, as it travels."""
    return _signed(_MEANING, flow, credentials, at_us)


def signed_wish(app: str, credentials: Credentials, at_us: int) -> bytes:
    """Return the wish to read an app's flow, signed with these credentials."""
    return _signed(_WISH, app.encode(), credentials, at_us)


def _signed(meaning: bytes, content: bytes, credentials: Credentials, at_us: int) -> bytes:
    certificate, signature = credentials.sign(_signable(meaning, content, at_us))
    return msgspec.msgpack.encode(SignedFlow(content, at_us, certificate, signature))


def _signable(meaning: bytes, content: bytes, at_us: int) -> bytes:
    return meaning + at_us.to_bytes(8, "big") + content


class Trust:
    """Verifies the flows that one node receives."""

    def __init__(self, credentials: Callable[[], Credentials]) -> None:
        """Take a function, so that a reloaded deny list or authority counts at once."""
        self._credentials = credentials

    def arrived(self, encoded: bytes) -> Checked:
        """Verify a flow from another node or user; raises UntrustedFlow unless a user has signed it who may submit."""
        one, credentials = read_signed(encoded), self._credentials()
        return Checked(one.flow, _welcome(one, credentials, _MEANING) if credentials.is_secure else None)

    def asked(self, app: str, wish: bytes, now: dt.datetime) -> Identity | None:
        """Return the signer of a wish to read an app's flow; raises UntrustedFlow unless they may submit."""
        one, credentials = read_signed(wish), self._credentials()
        if not credentials.is_secure:
            return None
        signer = _welcome(one, credentials, _WISH)
        if one.flow != app.encode() or abs(now - one.at) > WISH_AGE_MAX:
            raise UntrustedFlow(
                f"{signer} has not asked for the flow of {app} now; look at the clocks, and after the node that asks"
            )
        return signer

    def running(self, encoded: bytes) -> Checked:
        """Verify a flow that a node says it runs; raises UntrustedFlow unless a user has signed it who may submit.

        The reader will sign what it contains. A signer who is on the deny list by now counts: this may be why they
        upgrade.
        """
        one, credentials = read_signed(encoded), self._credentials()
        return Checked(one.flow, _signer(one, credentials, _MEANING) if credentials.is_secure else None)

    def kept(self, encoded: bytes) -> Checked:
        """Return a flow of our own store: verified on arrival, it runs on even if its signer is denied since."""
        return Checked(read_signed(encoded).flow, None)


def read_signed(encoded: bytes) -> SignedFlow:
    """Decode a signed flow, without verifying it; raises FlowError if it is invalid."""
    try:
        return msgspec.msgpack.decode(encoded, type=SignedFlow)
    except UNDECODABLE as damage:
        raise FlowError(f"what was sent is no flow ({damage}); is the sender's version ours?") from damage


def _welcome(one: SignedFlow, credentials: Credentials, meaning: bytes) -> Identity:
    """Return the signer; raises UntrustedFlow if the signature is invalid, or the signer denied."""
    signer = _signer(one, credentials, meaning)
    if credentials.denies(signer):
        raise UntrustedFlow(
            f"{signer} has signed a flow and is on the deny list; let another user submit it, or upgrade the app if it "
            "runs (`headwater upgrade`)"
        )
    return signer


def _signer(one: SignedFlow, credentials: Credentials, meaning: bytes) -> Identity:
    """Return the signer; raises UntrustedFlow if the signature was not valid when it was made."""
    if not one.signature or not one.certificate:
        raise UntrustedFlow(
            "a flow came that no user has signed, and nodes with certificates run none such; submit it with the "
            "certificate of a user (`headwater submit --certs DIR`)"
        )
    certificate, signer = _issued(one.certificate, credentials)
    if not _has_signed(certificate, one, meaning):
        raise UntrustedFlow(
            f"{signer} has not signed the flow that came in their name: it was altered on its way, or the signature is "
            "another flow's; look after the node that it came from, and submit it again"
        )
    if not signer.role.includes(Role.SUBMIT):
        raise UntrustedFlow(
            f"{signer} has signed a flow and may not submit any; submit it with the certificate of a user who has the "
            "role 'submit'"
        )
    if not certificate.not_valid_before_utc <= one.at < certificate.not_valid_after_utc:
        raise UntrustedFlow(
            f"{signer} has signed a flow on {one.at:%Y-%m-%d}, and the certificate counts from "
            f"{certificate.not_valid_before_utc:%Y-%m-%d} until {certificate.not_valid_after_utc:%Y-%m-%d}; renew it "
            "with `headwater certs renew`, look at the clock, and submit the flow again"
        )
    return signer


def _issued(encoded: bytes, credentials: Credentials) -> tuple[x509.Certificate, Identity]:
    """Return a certificate and its identity; raises UntrustedFlow unless our authority has issued it."""
    try:
        certificate = x509.load_der_x509_certificate(encoded)
        if any(_is_of(authority, certificate) for authority in credentials.authorities):
            return certificate, identity_in(certificate)
    except (*_UNREADABLE, NobodyKnown):
        pass
    raise UntrustedFlow(
        "a flow came with a certificate that is not of this cluster's authority; submit it with one that `headwater "
        "certs user` made for this cluster"
    )


def _is_of(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_UNREADABLE, InvalidSignature):
        return False
    return True


def _has_signed(certificate: x509.Certificate, one: SignedFlow, meaning: bytes) -> bool:
    key = certificate.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):  # the authority makes no others
            key.verify(one.signature, _signable(meaning, one.flow, one.at_us), ec.ECDSA(hashes.SHA256()))
            return True
    except InvalidSignature:
        pass
    return False
