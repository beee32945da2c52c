"""How a node or user proves its identity, and how it checks that of others.

`Certified` is the normal way: mutual TLS 1.3, with the cluster's own authority and no other. `Insecure` is for trying
things out on one machine: no encryption, identities are taken on trust, and only loopback addresses are used.
"""

import datetime as dt
import functools
import ipaddress
import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.links.refusals import Reason
from headwater.links.speech import VERSION, Greeting, Kind
from headwater.model.errors import ConfigError
from headwater.model.peers import ID_BYTES, NodeId
from headwater.security.authority import (
    CA_CERTIFICATE,
    DENIED,
    key_pem,
    read_certificate,
    read_certificates,
    read_denied,
    read_key,
    write_new,
)
from headwater.security.identity import Identity, NobodyKnown, Role, id_of_key, identity_in

log = logging.getLogger(__name__)

OWN_KEY: Final = "node.key"  # in the data directory of a node without certificates


class Unwelcome(Exception):
    """A peer is refused."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason.value)


class Credentials(Protocol):
    """Our identity, and how we verify that of others."""

    @property
    def identity(self) -> Identity:
        """Our own identity."""

    @property
    def is_secure(self) -> bool:
        """Whether connections are encrypted and mutually authenticated."""

    def accepting(self) -> ssl.SSLContext | None:
        """Return the TLS context of a server; None: plaintext."""

    def dialling(self) -> ssl.SSLContext | None:
        """Return the TLS context of a client; None: plaintext."""

    def greeting(self, kind: Kind) -> Greeting:
        """Return the first message on a connection that we make."""

    def recognise(self, connection: ssl.SSLObject | None, greeting: Greeting | None) -> Identity:
        """Return the identity of the other end, by its certificate (or, insecure, its greeting)."""

    def denies(self, other: Identity) -> bool:
        """Whether a certificate has been revoked."""

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """The authorities whose certificates we accept; insecure, none."""

    def sign(self, content: bytes) -> tuple[bytes, bytes]:
        """Return our certificate (DER) and our signature of something; insecure, both are empty."""

    def reloaded(self) -> "Credentials | None":
        """Return credentials read anew, if their files have changed."""


# --- certified --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Certified:
    """A key, a certificate of the cluster's authority, and the ids that count no longer."""

    directory: Path
    identity: Identity
    denied: frozenset[NodeId]
    authorities: tuple[x509.Certificate, ...] = field(repr=False)
    stamp: tuple[tuple[str, int, int], ...] = field(repr=False)  # of the files
    is_secure: bool = True

    def accepting(self) -> ssl.SSLContext:
        """Accept clients with a certificate of our authority."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # a resumed session would skip the check of its certificate
        return context

    def dialling(self) -> ssl.SSLContext:
        """Speak to nodes of our authority only, and only at the addresses in their certificates."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: "ssl._SSLMethod") -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        try:
            context.load_verify_locations(self.directory / CA_CERTIFICATE)
            context.load_cert_chain(*_files(self.directory))
        except ssl.SSLError as failure:
            raise ConfigError(f"key, certificate and authority in {self.directory} do not fit together") from failure
        except OSError as failure:
            raise ConfigError(f"the certificates in {self.directory} cannot be read: {failure.strerror}") from failure
        return context

    def greeting(self, kind: Kind) -> Greeting:
        """Say only our kind; the certificate says who we are."""
        return Greeting(VERSION, kind)

    def recognise(self, connection: ssl.SSLObject | None, greeting: Greeting | None) -> Identity:
        """Return the identity in the certificate, unless that is revoked."""
        shown = None if connection is None else connection.getpeercert(binary_form=True)
        if shown is None:
            raise Unwelcome(Reason.NO_CERTIFICATE)
        try:
            identity = identity_in(x509.load_der_x509_certificate(shown))
        except (NobodyKnown, ValueError) as failure:
            raise Unwelcome(Reason.BAD_CERTIFICATE, str(failure)) from failure
        if self.denies(identity):
            raise Unwelcome(Reason.DENIED, str(identity))
        return identity

    def denies(self, other: Identity) -> bool:
        """Whether an identity is on the deny list."""
        return other.id in self.denied

    def sign(self, content: bytes) -> tuple[bytes, bytes]:
        """Sign with the key of the certificate, which is read from its file each time and not kept in memory."""
        certificate_file, key_file = _files(self.directory)
        certificate = read_certificate(certificate_file).public_bytes(serialization.Encoding.DER)
        return certificate, read_key(key_file).sign(content, ec.ECDSA(hashes.SHA256()))

    def reloaded(self) -> "Certified | None":
        """Return the credentials in the files; None if those have not changed."""
        return None if _stamp(self.directory) == self.stamp else load_credentials(self.directory)


def load_credentials(directory: Path, *, now: dt.datetime | None = None) -> Certified:
    """Read the files that `headwater certs node` or `certs user` has made."""
    stamp = _stamp(directory)
    certificate_file, key_file = _files(directory)
    certificate = read_certificate(certificate_file)
    _refuse_useless(certificate, certificate_file, dt.datetime.now(dt.UTC) if now is None else now)
    if read_key(key_file).public_key() != certificate.public_key():
        raise ConfigError(f"{key_file} is not the key of {certificate_file}")
    try:
        identity = identity_in(certificate)
    except NobodyKnown as failure:
        raise ConfigError(f"{certificate_file}: {failure}; make it with `headwater certs`") from failure
    denied = read_denied(directory / DENIED)
    if key_file.stat().st_mode & 0o077:
        log.warning("%s can be read by others of this machine; chmod 600 it", key_file)
    return Certified(directory, identity, denied, read_certificates(directory / CA_CERTIFICATE), stamp)


def _refuse_useless(certificate: x509.Certificate, path: Path, now: dt.datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= end:
        raise ConfigError(f"{path} has expired on {end:%Y-%m-%d}; renew it with `headwater certs renew`")
    if now < begin:
        raise ConfigError(
            f"{path} is valid from {begin:%Y-%m-%d} on, and here it is {now:%Y-%m-%d}; is the clock right?"
        )


def _files(directory: Path) -> tuple[Path, Path]:
    for word in ("node", "user"):
        if (directory / f"{word}.pem").exists():
            return directory / f"{word}.pem", directory / f"{word}.key"
    raise ConfigError(f"{directory} holds neither node.pem nor user.pem; copy what `headwater certs node` made there")


def _stamp(directory: Path) -> tuple[tuple[str, int, int], ...]:
    try:
        found = [(path.name, path.stat()) for path in sorted(directory.iterdir())]
    except OSError as failure:
        raise ConfigError(f"the certificates in {directory} cannot be read: {failure.strerror}") from failure
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


# --- insecure ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Insecure:
    """No certificate: a persistent id, and the other end's identity is taken on trust."""

    identity: Identity
    is_secure: bool = False
    authorities: tuple[x509.Certificate, ...] = ()

    def accepting(self) -> None:
        """Accept plaintext."""

    def dialling(self) -> None:
        """Connect in plaintext."""

    def greeting(self, kind: Kind) -> Greeting:
        """Say who we are, as there is no certificate."""
        return Greeting(VERSION, kind, self.identity.name, self.identity.id)

    def recognise(self, connection: ssl.SSLObject | None, greeting: Greeting | None) -> Identity:
        """Return the identity that the other end claims; any user of this machine may do everything."""
        if greeting is None:  # we have connected to it, and it sends no greeting
            return Identity(NodeId(bytes(ID_BYTES)), "", Role.NODE)
        if greeting.kind == "node" and len(greeting.id) != ID_BYTES:
            raise Unwelcome(Reason.BAD_GREETING, "a node without an id")
        role = Role.NODE if greeting.kind == "node" else Role.OPERATE
        return Identity(NodeId(greeting.id), greeting.name, role)

    def denies(self, other: Identity) -> bool:
        """Return False: there is no deny list."""
        return False

    def sign(self, content: bytes) -> tuple[bytes, bytes]:
        """Return nothing: insecure nodes verify no signatures."""
        return b"", b""

    def reloaded(self) -> None:
        """Return None: nothing can change."""


def insecure_node(data: Path, name: str = "") -> Insecure:
    """Return a node's credentials without certificates; a key in its data directory makes its id persistent."""
    path = data / OWN_KEY
    if not path.exists():
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise ConfigError(f"{data} cannot be made: {failure.strerror}") from failure
        write_new(path, key_pem(ec.generate_private_key(ec.SECP256R1())), private=True)
    return Insecure(Identity(id_of_key(read_key(path).public_key()), name, Role.NODE))


def insecure_user(name: str) -> Insecure:
    """Return a user's credentials for a node without certificates on this machine."""
    return Insecure(Identity(NodeId(b""), name, Role.OPERATE))


@functools.lru_cache(maxsize=1_024)  # called for every message, for the same few hosts; to parse an address takes 50 us
def is_loopback(host: str) -> bool:
    """Whether a host is this machine, judged by its address or name alone."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_insecure_beyond_loopback(what: str, host: str) -> None:
    """Raise if plaintext would leave this machine."""
    if not is_loopback(host):
        raise ConfigError(
            f"--insecure works on this machine only, and {what} {host} is not a loopback address; "
            "use 127.0.0.1, or make certificates (`headwater certs init`) and give --certs"
        )
