"""Whose a flow is: the user who brings it signs it, and every node looks for itself before it builds anything.

Nodes hand flows on to one another, and a node may be in wrong hands. So it is not believed who a flow is from: the
signature travels with it, wherever it goes and is kept, and code runs only if somebody has signed it who may submit.
A node without certificates believes everybody, and so signs and asks for nothing.

The signature says that a user wanted this flow, and when. It does not say where, as which app or how often: whoever has
a signed flow can have it run again, but no other.

Who upgrades an app reads its flow first, with the passwords in it. So that, too, is asked for with a signature: a node
that was not asked by a user learns nothing of an app that has not come to it.
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

SIGNING_BYTES: Final = 4_096  # of what travels of a flow are the certificate's and the signature's, at most
TEXT_BYTES_MAX: Final = FLOW_BYTES_MAX - SIGNING_BYTES
_CERTIFICATE_BYTES_MAX: Final = 3_072  # ours have about 600
_SIGNATURE_BYTES_MAX: Final = 128  # of P-256 there are 72
_AT_US_END: Final = 1 << 57  # in the year 6537; a date of Python ends in 9999
_MEANING: Final = (
    b"headwater: I submit this flow\0"  # what is signed with the same key elsewhere, as by TLS, begins otherwise
)
_WISH: Final = b"headwater: I want to read the flow of this app\0"
WISH_AGE_MAX: Final = dt.timedelta(hours=1)  # clocks differ; whoever has seen one can read the same app again so long
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    x509.InvalidVersion,
    UnsupportedAlgorithm,
)  # what bytes of others may raise
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class UntrustedFlow(FlowError):
    """A flow has come that nobody has signed who may submit."""


class SignedFlow(msgspec.Struct, frozen=True, array_like=True):
    """A flow as it travels and is kept; without certificates, nobody has signed it."""

    flow: Annotated[bytes, Meta(max_length=TEXT_BYTES_MAX)]
    at_us: Annotated[int, Meta(ge=0, lt=_AT_US_END)] = 0  # when it was signed, as the signer says
    certificate: Annotated[bytes, Meta(max_length=_CERTIFICATE_BYTES_MAX)] = b""  # DER, of the signer
    signature: Annotated[bytes, Meta(max_length=_SIGNATURE_BYTES_MAX)] = b""

    @property
    def at(self) -> dt.datetime:
        """When it was signed."""
        return _EPOCH + dt.timedelta(microseconds=self.at_us)


class Checked(NamedTuple):
    """A flow that may be built, and who has signed it; None: there are no certificates."""

    flow: bytes
    signer: Identity | None


Check = Callable[[bytes], Checked]


def signed(flow: bytes, credentials: Credentials, at_us: int) -> bytes:
    """Return a flow as it travels, signed by whoever these credentials are of."""
    return _signed(_MEANING, flow, credentials, at_us)


def signed_wish(app: str, credentials: Credentials, at_us: int) -> bytes:
    """Return the wish to read an app's flow, signed by whoever these credentials are of."""
    return _signed(_WISH, app.encode(), credentials, at_us)


def _signed(meaning: bytes, content: bytes, credentials: Credentials, at_us: int) -> bytes:
    certificate, signature = credentials.sign(_signable(meaning, content, at_us))
    return msgspec.msgpack.encode(SignedFlow(content, at_us, certificate, signature))


def _signable(meaning: bytes, content: bytes, at_us: int) -> bytes:
    return meaning + at_us.to_bytes(8, "big") + content


class Trust:
    """What one node makes of the flows that it gets."""

    def __init__(self, credentials: Callable[[], Credentials]) -> None:
        """Believe what these credentials say at the time: the deny list and the authority are read again."""
        self._credentials = credentials

    def arrived(self, encoded: bytes) -> Checked:
        """Return a flow that somebody has sent; raises UntrustedFlow unless a user has signed it who may submit."""
        one, credentials = read_signed(encoded), self._credentials()
        return Checked(one.flow, _welcome(one, credentials, _MEANING) if credentials.is_secure else None)

    def asked(self, app: str, wish: bytes, now: dt.datetime) -> Identity | None:
        """Return who wants to read the flow of an app; raises UntrustedFlow unless it is somebody who may submit."""
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
        """Return a flow that a node says runs; raises UntrustedFlow unless a user has signed it who may submit.

        Whoever reads it puts their own name to what is in it. If its signer is denied since, that is why they upgrade.
        """
        one, credentials = read_signed(encoded), self._credentials()
        return Checked(one.flow, _signer(one, credentials, _MEANING) if credentials.is_secure else None)

    def kept(self, encoded: bytes) -> Checked:
        """Return a flow of our own store: it was looked at when it arrived, and goes on whoever is denied since."""
        return Checked(read_signed(encoded).flow, None)


def read_signed(encoded: bytes) -> SignedFlow:
    """Return what was sent with its signature, which nobody has looked at yet; raises FlowError if it is no such."""
    try:
        return msgspec.msgpack.decode(encoded, type=SignedFlow)
    except UNDECODABLE as damage:
        raise FlowError(f"what was sent is no flow ({damage}); is the sender's version ours?") from damage


def _welcome(one: SignedFlow, credentials: Credentials, meaning: bytes) -> Identity:
    """Return who has signed something; raises UntrustedFlow if that does not count, or no longer."""
    signer = _signer(one, credentials, meaning)
    if credentials.denies(signer):
        raise UntrustedFlow(
            f"{signer} has signed a flow and is on the deny list; let another user submit it, or upgrade the app if it "
            "runs (`headwater upgrade`)"
        )
    return signer


def _signer(one: SignedFlow, credentials: Credentials, meaning: bytes) -> Identity:
    """Return who has signed something; raises UntrustedFlow if that did not count when it was signed."""
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
    """Return a certificate and whose it is; raises UntrustedFlow if it is not of our authority."""
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
