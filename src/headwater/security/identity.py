"""An identity, as a certificate states it: an id that is a hash of the key, a name, and a role.

The role is in the certificate's subject (the organizational unit), so nodes need no list of users. A certificate whose
subject has no role of Headwater is refused, whoever has signed it.
"""

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from headwater.model.errors import HeadwaterError
from headwater.model.peers import ID_BYTES, NodeId

UNIT_PREFIX: Final = "headwater-"  # of the organizational unit: headwater-node, headwater-see, ...


class Role(StrEnum):
    """What a certificate allows its holder to be or do; a user's role includes the ones before it."""

    NODE = "node"
    SEE = "see"
    SUBMIT = "submit"
    OPERATE = "operate"

    def includes(self, needed: "Role") -> bool:
        """Whether this role includes what that one may do; a node may read, and nothing else that users may."""
        return _RANK[self] >= _RANK[needed]


_RANK: Final = {Role.NODE: 0, Role.SEE: 0, Role.SUBMIT: 1, Role.OPERATE: 2}
USER_ROLES: Final = (Role.SEE, Role.SUBMIT, Role.OPERATE)


class NobodyKnown(HeadwaterError):
    """A certificate does not state a name and role of Headwater."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a certificate."""

    id: NodeId
    name: str
    role: Role
    expires: dt.datetime | None = field(default=None, compare=False)  # a renewed certificate is the same identity

    def __str__(self) -> str:
        """Return the form used in logs."""
        return f"{'node' if self.role is Role.NODE else 'user'} {self.name} ({self.id[:4].hex()})"


def id_of_key(key: CertificatePublicKeyTypes) -> NodeId:
    """Return the id of a public key: a node's place on the ring, or what the deny list names."""
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return NodeId(blake2b(encoded, digest_size=ID_BYTES).digest())


def identity_in(certificate: x509.Certificate) -> Identity:
    """Return the identity in a certificate; TLS has to verify that certificate."""
    units = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(units) != 1 or len(names) != 1:
        raise NobodyKnown("the certificate names no node and no user of Headwater")
    unit, name = str(units[0].value), str(names[0].value)
    try:
        role = Role(unit.removeprefix(UNIT_PREFIX)) if unit.startswith(UNIT_PREFIX) else None
    except ValueError:
        role = None
    if role is None:
        raise NobodyKnown(f"the certificate of {name[:64]!r} has no role of Headwater")
    return Identity(id_of_key(certificate.public_key()), name, role, certificate.not_valid_after_utc)
