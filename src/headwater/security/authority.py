"""A cluster's own certificate authority, as files: it certifies nodes, and users with their roles.

    DIR/ca.pem, DIR/ca.key         the authority; its key signs, and belongs on no node
    DIR/nodes/NAME/                what a node needs, to be copied there: ca.pem, node.pem, node.key
    DIR/users/NAME/                what a user needs: ca.pem, user.pem, user.key
    DIR/denied                     ids of revoked certificates; nodes have a copy

Keys are ECDSA P-256: every TLS 1.3 has it, and small machines sign with it in less than a millisecond. No file is ever
overwritten, but a certificate that is renewed.
"""

import datetime as dt
import ipaddress
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater.model.errors import ConfigError
from headwater.model.ids import checked_name
from headwater.model.peers import ID_BYTES, NodeId
from headwater.security.identity import UNIT_PREFIX, Role

CA_CERTIFICATE: Final = "ca.pem"
CA_KEY: Final = "ca.key"
DENIED: Final = "denied"
NODES: Final = "nodes"
USERS: Final = "users"

CA_DAYS: Final = 3_650  # to replace it means new certificates for all nodes and users
NODE_DAYS: Final = 365
USER_DAYS: Final = 90  # people come and go; and a forgotten laptop is harmless the sooner
NAME_CHARS_MAX: Final = 64  # of X.509's common name
ADDRESSES_MAX: Final = 64
_SKEW: Final = dt.timedelta(days=1)  # certificates are valid from a day ago, for clocks that are behind
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*")


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority with its key."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue_node(
        self, name: str, addresses: Sequence[str], *, days: int = NODE_DAYS, now: dt.datetime | None = None
    ) -> Path:
        """Make a node's key and certificate, and return the directory to copy to it."""
        places = [_general_name(address) for address in addresses]
        if not 1 <= len(places) <= ADDRESSES_MAX:
            raise ConfigError(f"node {name!r} needs 1 to {ADDRESSES_MAX} addresses at which others reach it")
        return self._issue(NODES, name, Role.NODE, x509.SubjectAlternativeName(places), days, now)

    def issue_user(self, name: str, role: Role, *, days: int = USER_DAYS, now: dt.datetime | None = None) -> Path:
        """Make a user's key and certificate, and return the directory to give to them."""
        if role is Role.NODE:
            raise ConfigError("a user sees, submits or operates; for a node there is `headwater certs node`")
        return self._issue(USERS, name, role, None, days, now)

    def renew(self, name: str, *, days: int | None = None, now: dt.datetime | None = None) -> Path:
        """Sign a node's or user's public key again, with the same name and addresses; the private key is not needed."""
        path = self.certificate_of(name)
        old = read_certificate(path)
        usual = NODE_DAYS if path.parent.parent.name == NODES else USER_DAYS
        builder = self._unsigned(old.subject, old.public_key(), usual if days is None else days, now)  # type: ignore[arg-type]  # ours are of P-256
        for extension in old.extensions:
            if isinstance(extension.value, _KEPT):
                builder = builder.add_extension(extension.value, critical=extension.critical)
        fresh = path.with_suffix(".fresh")
        fresh.write_bytes(_pem(builder.sign(self.key, hashes.SHA256())))
        fresh.replace(path)
        return path

    def deny(self, identity: NodeId, name: str) -> Path:
        """Add an id to the deny list, and return the list's file."""
        path = self.directory / DENIED
        if identity not in read_denied(path):
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{identity.hex()}  # {name}\n")
        return path

    def certificate_of(self, name: str) -> Path:
        """Return the file of a node's or user's certificate."""
        for path in (self.directory / NODES / name / "node.pem", self.directory / USERS / name / "user.pem"):
            if path.exists():
                return path
        known = sorted(path.name for kind in (NODES, USERS) for path in (self.directory / kind).glob("*"))
        raise ConfigError(
            f"{name!r} is neither a node nor a user in {self.directory}; there are: {', '.join(known) or 'none'}"
        )

    def _issue(
        self,
        kind: str,
        name: str,
        role: Role,
        places: x509.SubjectAlternativeName | None,
        days: int,
        now: dt.datetime | None,
    ) -> Path:
        word = kind.removesuffix("s")
        if len(checked_name(word, name)) > NAME_CHARS_MAX:
            raise ConfigError(f"the {word} name {name[:20]!r}... is too long; use at most {NAME_CHARS_MAX} characters")
        other = self.directory / (USERS if kind == NODES else NODES) / name
        if other.exists():
            raise ConfigError(f"{name!r} is taken: {other} exists; one name stands for one node or user")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, UNIT_PREFIX + role.value),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        builder = self._unsigned(subject, key.public_key(), days, now)
        for extension, critical in _leaf_extensions(role, places):
            builder = builder.add_extension(extension, critical=critical)
        signed = builder.sign(self.key, hashes.SHA256())
        return self._write_bundle(self.directory / kind / name, word, signed, key)

    def _unsigned(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: dt.datetime | None
    ) -> x509.CertificateBuilder:
        begin, end = _lifetime(days, now)
        issuer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(min(end, self.certificate.not_valid_after_utc))  # none outlives the authority
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        )

    def _write_bundle(self, path: Path, word: str, signed: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
        _make_private_directory(path)
        write_new(path / f"{word}.key", key_pem(key), private=True)
        write_new(path / f"{word}.pem", _pem(signed))
        write_new(path / CA_CERTIFICATE, _pem(self.certificate))
        if (self.directory / DENIED).exists():
            shutil.copyfile(self.directory / DENIED, path / DENIED)
        return path


# What a renewed certificate keeps.
_KEPT: Final = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage, x509.SubjectAlternativeName)


def make_authority(directory: Path, *, days: int = CA_DAYS, now: dt.datetime | None = None) -> Authority:
    """Make a new authority in a directory."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"{directory} cannot be made: {failure.strerror}") from failure
    key = ec.generate_private_key(ec.SECP256R1())
    begin, end = _lifetime(days, now)
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"headwater cluster {serial % 0xFFFFFFFF:08x}")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_new(directory / CA_KEY, key_pem(key), private=True)
    write_new(directory / CA_CERTIFICATE, _pem(signed))
    return Authority(directory, signed, key)


def open_authority(directory: Path) -> Authority:
    """Return the authority in a directory."""
    certificate = read_certificate(directory / CA_CERTIFICATE)
    key = read_key(directory / CA_KEY)
    if key.public_key() != certificate.public_key():
        raise ConfigError(f"{directory / CA_KEY} is not the key of {directory / CA_CERTIFICATE}")
    return Authority(directory, certificate, key)


# --- files ------------------------------------------------------------------------------------------------------------


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as failure:
        raise ConfigError(f"the certificate {path} cannot be read: {failure.strerror}") from failure
    except ValueError as failure:
        raise ConfigError(f"{path} is not a certificate in PEM form") from failure


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """Return all certificates in a file, at least one; while an authority is being replaced there are two."""
    read_certificate(path)
    return tuple(x509.load_pem_x509_certificates(path.read_bytes()))


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as failure:
        raise ConfigError(f"the key {path} cannot be read: {failure.strerror}") from failure
    except (ValueError, TypeError) as failure:
        raise ConfigError(f"{path} is not a private key in PEM form without a password") from failure
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} is not an elliptic-curve key; make one with `headwater certs`")
    return key


def read_denied(path: Path) -> frozenset[NodeId]:
    """Return the ids on a deny list; none if there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(f"the deny list {path} cannot be read: {failure}") from failure
    found = set()
    for number, line in enumerate(lines, start=1):
        written = line.partition("#")[0].strip()
        if written:
            found.add(_id_written(written, f"{path}:{number}"))
    return frozenset(found)


def _id_written(written: str, where: str) -> NodeId:
    try:
        identity = bytes.fromhex(written)
    except ValueError:
        identity = b""
    if len(identity) != ID_BYTES:
        raise ConfigError(f"{where}: {written[:64]!r} is not an id; write its {2 * ID_BYTES} hexadecimal digits")
    return NodeId(identity)


def parse_id(written: str) -> NodeId:
    """Read an id as `headwater certs show` prints it."""
    return _id_written(written, "--id")


def write_new(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a new file; a private one is never readable by others."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    except FileExistsError as failure:
        raise ConfigError(
            f"{path} exists and is not overwritten; remove it first, or use another directory"
        ) from failure
    except OSError as failure:
        raise ConfigError(f"{path} cannot be written: {failure.strerror}") from failure
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in the form of its file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _make_private_directory(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError as failure:
        raise ConfigError(
            f"{path} exists and is not overwritten; renew it (`headwater certs renew`), or remove it first"
        ) from failure
    except OSError as failure:
        raise ConfigError(f"{path} cannot be made: {failure.strerror}") from failure


# --- what stands in a certificate -------------------------------------------------------------------------------------


def _lifetime(days: int, now: dt.datetime | None) -> tuple[dt.datetime, dt.datetime]:
    if not 1 <= days <= 36_500:
        raise ConfigError(f"a certificate for {days} days is not possible; use 1 to 36500")
    now = dt.datetime.now(dt.UTC) if now is None else now
    return now - _SKEW, now + dt.timedelta(days=days)


def _general_name(address: str) -> x509.GeneralName:
    written = address.strip()
    try:
        return x509.IPAddress(ipaddress.ip_address(written.strip("[]")))
    except ValueError:
        pass
    if _HOST.fullmatch(written) is None:
        raise ConfigError(f"{address!r} is not a host name or IP address; give it without a port")
    return x509.DNSName(written)


def _leaf_extensions(role: Role, places: x509.SubjectAlternativeName | None) -> list[tuple[x509.ExtensionType, bool]]:
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role is Role.NODE:  # TLS itself refuses a user's certificate as that of a server
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(signs=False), True),
        (x509.ExtendedKeyUsage(purposes), False),
        *([(places, False)] if places is not None else []),
    ]


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
