"""A cluster's certificate authority: what it signs, what it refuses, and what it never overwrites."""

import datetime as dt
import stat
from pathlib import Path

import pytest

from headwater.model.errors import ConfigError, HeadwaterError
from headwater.model.peers import ID_BYTES
from headwater.security.authority import (
    Authority,
    make_authority,
    open_authority,
    read_certificate,
    read_denied,
    read_key,
)
from headwater.security.identity import Identity, NobodyKnown, Role, id_of_key, identity_in


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """One with its files in a directory of its own."""
    return make_authority(tmp_path / "cluster")


def test_a_nodes_id_is_a_hash_of_its_key_and_its_name_and_role_are_in_the_certificate(authority: Authority) -> None:
    bundle = authority.issue_node("gw1", ["gw1.example", "10.0.0.1", "::1"])
    found = identity_in(read_certificate(bundle / "node.pem"))
    assert found == Identity(id_of_key(read_key(bundle / "node.key").public_key()), "gw1", Role.NODE)
    assert len(found.id) == ID_BYTES
    other = identity_in(read_certificate(authority.issue_node("gw2", ["gw2"]) / "node.pem"))
    assert other.id != found.id


@pytest.mark.parametrize("role", [Role.SEE, Role.SUBMIT, Role.OPERATE])
def test_a_users_role_is_in_the_certificate(authority: Authority, role: Role) -> None:
    bundle = authority.issue_user("ann", role)
    assert identity_in(read_certificate(bundle / "user.pem")).role is role


def test_private_keys_are_their_owners_alone_and_the_authoritys_is_in_no_bundle(authority: Authority) -> None:
    node, user = authority.issue_node("gw1", ["gw1"]), authority.issue_user("ann", Role.SEE)
    for key in (authority.directory / "ca.key", node / "node.key", user / "user.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in node.iterdir()) == ["ca.pem", "node.key", "node.pem"]
    assert sorted(path.name for path in user.iterdir()) == ["ca.pem", "user.key", "user.pem"]


def test_nothing_is_overwritten(authority: Authority) -> None:
    bundle = authority.issue_node("gw1", ["gw1"])
    before = (bundle / "node.key").read_bytes()
    with pytest.raises(ConfigError, match="exists and is not overwritten; renew it"):
        authority.issue_node("gw1", ["gw1"])
    with pytest.raises(ConfigError, match="'gw1' is taken"):
        authority.issue_user("gw1", Role.SEE)
    with pytest.raises(ConfigError, match=r"ca\.key exists and is not overwritten"):
        make_authority(authority.directory)
    assert (bundle / "node.key").read_bytes() == before


def test_an_authority_opened_again_signs_for_the_same_cluster(authority: Authority) -> None:
    again = open_authority(authority.directory)
    signed = read_certificate(again.issue_node("gw1", ["gw1"]) / "node.pem")
    signed.verify_directly_issued_by(authority.certificate)


def test_a_renewed_certificate_has_the_same_key_name_and_addresses_and_lives_longer(authority: Authority) -> None:
    bundle = authority.issue_node("gw1", ["gw1", "10.0.0.1"], days=2)
    (bundle / "node.key").unlink()  # it is on the gateway, and only there
    old = read_certificate(bundle / "node.pem")
    new = read_certificate(authority.renew("gw1"))
    assert identity_in(new) == identity_in(old)
    kept = ("subjectAltName", "extendedKeyUsage", "basicConstraints", "keyUsage")
    assert [value_of(new, name) for name in kept] == [value_of(old, name) for name in kept]
    assert new.not_valid_after_utc - old.not_valid_after_utc > dt.timedelta(days=300)


def value_of(certificate: object, name: str) -> object:
    """Return an extension's value by its name."""
    found = [one.value for one in certificate.extensions if one.oid._name == name]  # type: ignore[attr-defined]
    assert len(found) == 1
    return found[0]


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, days=10)
    signed = read_certificate(authority.issue_node("gw1", ["gw1"], days=365) / "node.pem")
    assert signed.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_denied_id_is_on_the_list_once_and_comes_with_new_bundles(authority: Authority) -> None:
    lost = identity_in(read_certificate(authority.issue_node("lost", ["lost"]) / "node.pem"))
    for _ in range(2):
        path = authority.deny(lost.id, lost.name)
    assert read_denied(path) == {lost.id}
    assert len(path.read_text().splitlines()) == 1
    assert read_denied(authority.issue_node("new", ["new"]) / "denied") == {lost.id}


def test_a_deny_list_that_cannot_be_understood_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "denied").write_text("# ours\n\n1234  # too short\n")
    with pytest.raises(ConfigError, match=r"denied:3: '1234' is not an id"):
        read_denied(tmp_path / "denied")


@pytest.mark.parametrize(
    ("name", "addresses", "told"),
    [
        ("../evil", ["gw1"], "cannot be a node name"),
        ("x" * 65, ["gw1"], "too long"),
        ("gw1", ["gw1:7000"], "without a port"),
        ("gw1", ["gw 1"], "not a host name"),
        ("gw1", [], "needs 1 to 64 addresses"),
    ],
)
def test_names_and_addresses_that_cannot_be_are_refused(
    authority: Authority, name: str, addresses: list[str], told: str
) -> None:
    with pytest.raises(HeadwaterError, match=told):
        authority.issue_node(name, addresses)
    assert not (authority.directory / "nodes").exists()


def test_the_key_of_another_authority_is_not_taken(tmp_path: Path) -> None:
    one, other = make_authority(tmp_path / "one"), make_authority(tmp_path / "other")
    (one.directory / "ca.key").write_bytes((other.directory / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match="is not the key of"):
        open_authority(one.directory)


def test_an_authoritys_own_certificate_is_nobodys(authority: Authority) -> None:
    with pytest.raises(NobodyKnown, match="names no node and no user"):
        identity_in(authority.certificate)


def test_each_role_includes_the_ones_before_it_and_a_node_only_sees() -> None:
    users = [Role.SEE, Role.SUBMIT, Role.OPERATE]
    may = {role: [needed for needed in users if role.includes(needed)] for role in Role}
    assert may == {Role.NODE: users[:1], Role.SEE: users[:1], Role.SUBMIT: users[:2], Role.OPERATE: users}
