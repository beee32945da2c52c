"""A certificate for one run of a node, by which its workers elsewhere know it.

Nobody vouches for it and nobody needs to: a worker gets it with its task, over the way by which it gets its code, and
accepts this one and no other.
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
    """Return what the node's end needs, and the certificate; the key never leaves this process's memory for long."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headwater node")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Of all times: a small machine's clock may be decades off, and the certificate is known by its bytes.
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
