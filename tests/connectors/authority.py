"""A certificate authority for brokers that speak TLS."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority, and what it has signed."""

    def __init__(self, directory: Path, name: str) -> None:
        """Make its own certificate."""
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self._write(f"{name}-ca", self._signed(name, self._key, is_ca=True), self._key)[0]

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(f"{self._name}-{name}", self._signed(name, key, is_ca=False), key)

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_ca: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        )
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, signed: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> tuple[Path, Path]:
        files = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        form = (serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        return files
