"""`headwater certs`: the certificates of a cluster's nodes and users."""

import datetime as dt
import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509

from headwater.console.screen import print_object
from headwater.model.errors import ConfigError
from headwater.security.authority import (
    CA_DAYS,
    NODE_DAYS,
    USER_DAYS,
    make_authority,
    open_authority,
    parse_id,
    read_certificate,
)
from headwater.security.identity import NobodyKnown, Role, id_of_key, identity_in

certs = typer.Typer(
    name="certs",
    no_args_is_help=True,
    add_completion=False,
    help="Make and look at the certificates by which nodes and users of a cluster know one another.",
)

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Where the cluster's authority is kept.")]
NameOption = Annotated[str, typer.Option("--name", help="What the node or user is called.")]
DaysOption = Annotated[int, typer.Option("--days", min=1, help="How long the certificate counts.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class UserRole(StrEnum):
    """What a user may do; each includes the ones before it."""

    SEE = "see"
    SUBMIT = "submit"
    OPERATE = "operate"


@certs.command()
def init(directory: DirectoryArgument, days: DaysOption = CA_DAYS, as_json: JsonOption = False) -> None:
    """Make a cluster's certificate authority; whoever has its key decides who is in the cluster."""
    authority = make_authority(directory, days=days)
    _tell(directory / "ca.pem", authority.certificate, as_json, f"keep {directory / 'ca.key'} off the nodes")


@certs.command()
def node(
    directory: DirectoryArgument,
    name: NameOption,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST[,HOST...]", help="Names or IP addresses of the machine.")
    ],
    days: DaysOption = NODE_DAYS,
    as_json: JsonOption = False,
) -> None:
    """Make a node's key and certificate, in a directory to copy to it."""
    bundle = open_authority(directory).issue_node(name, address.split(","), days=days)
    advice = f"copy {bundle} to the node and start it with --certs"
    _tell(bundle / "node.pem", read_certificate(bundle / "node.pem"), as_json, advice)


@certs.command()
def user(
    directory: DirectoryArgument,
    name: NameOption,
    role: Annotated[UserRole, typer.Option("--role", help="What the user may do, at most.")],
    days: DaysOption = USER_DAYS,
    as_json: JsonOption = False,
) -> None:
    """Make a user's key and certificate, in a directory to give to them."""
    bundle = open_authority(directory).issue_user(name, Role(role.value), days=days)
    _tell(bundle / "user.pem", read_certificate(bundle / "user.pem"), as_json, f"give {bundle} to the user")


@certs.command()
def renew(
    directory: DirectoryArgument,
    name: NameOption,
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="How long it counts.", show_default="as when it was made")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign a node's or user's key once more: the id stays, and only the .pem file has to be copied."""
    path = open_authority(directory).renew(name, days=days)
    _tell(path, read_certificate(path), as_json, f"copy {path} over the one in use; a node notices by itself")


@certs.command()
def deny(
    directory: DirectoryArgument,
    name: Annotated[
        str | None, typer.Option("--name", help="The node or user whose certificate counts no longer.")
    ] = None,
    written_id: Annotated[str | None, typer.Option("--id", help="Or its id, as `certs show` prints it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a certificate: put its id on the deny list, which nodes obey as soon as they have a copy."""
    if (name is None) == (written_id is None):
        raise ConfigError("say who is denied, with either --name or --id")
    authority = open_authority(directory)
    if name is not None:
        identity = id_of_key(read_certificate(authority.certificate_of(name)).public_key())
    else:
        identity = parse_id(written_id or "")
    path = authority.deny(identity, name or "by id")
    if as_json:
        print_object({"id": identity.hex(), "file": str(path)})
    else:
        print(f"{identity.hex()} is denied; copy {path} into the certs directory of every node")


@certs.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate (.pem).")], as_json: JsonOption = False
) -> None:
    """Tell whose a certificate is, what it allows, and until when."""
    _tell(file, read_certificate(file), as_json)


def _tell(path: Path, certificate: x509.Certificate, as_json: bool, advice: str = "") -> None:
    told = told_of(certificate)
    if as_json:
        print_object({"file": str(path), **told})
        return
    print(path)
    for name, value in told.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        if shown not in ("", None):
            print(f"  {name.replace('_', ' '):<12}{shown}")
    if advice:
        print(advice)


def told_of(certificate: x509.Certificate, now: dt.datetime | None = None) -> dict[str, Any]:
    """Return the facts of a certificate for a person."""
    now = dt.datetime.now(dt.UTC) if now is None else now
    end = certificate.not_valid_after_utc
    return {
        **_holder(certificate),
        "id": id_of_key(certificate.public_key()).hex(),
        "addresses": _addresses(certificate),
        "issuer": certificate.issuer.rfc4514_string(),
        "valid_from": f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
        "valid_until": f"{end:%Y-%m-%d %H:%M} UTC",
        "days_left": max(0, (end - now).days),
        "state": "expired" if end < now else "not yet valid" if certificate.not_valid_before_utc > now else "valid",
    }


def _holder(certificate: x509.Certificate) -> dict[str, Any]:
    try:
        identity = identity_in(certificate)
    except NobodyKnown:
        return {"kind": "authority" if certificate.issuer == certificate.subject else "not of Headwater"}
    kind = "node" if identity.role is Role.NODE else "user"
    return {"kind": kind, "name": identity.name, "role": "" if kind == "node" else identity.role.value}


def _addresses(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    hosts: list[str | ipaddress.IPv4Address | ipaddress.IPv6Address] = [
        *names.get_values_for_type(x509.DNSName),
        *names.get_values_for_type(x509.IPAddress),  # type: ignore[list-item]  # never a network in a certificate of ours
    ]
    return [str(host) for host in hosts]
