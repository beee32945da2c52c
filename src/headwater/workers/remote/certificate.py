"""A self-signed certificate for one run of a node, which its workers elsewhere trust.

It needs no authority: a worker gets it with its task, over the same way as its code, and accepts only this one
(pinning).
"""

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.security.authority import key_pem, write_new


def make_certificate(directory: Path) -> tuple[ssl.SSLContext, str]:
    """Return the server's TLS context and the certificate; the key is in a file only while the context reads it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headwater node")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Always valid: a small machine's clock may be decades off, and the certificate is known by its bytes.
        .not_valid_before(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    both = directory / "certificate.pem"  # Python's ssl takes a key from a file only
    write_new(both, key_pem(key) + pem, private=True)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(both)
    finally:
        both.unlink()
    return context, pem.decode()
