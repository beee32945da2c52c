"""`headwater certs` as a person uses it."""

import datetime as dt
from pathlib import Path

import orjson
import pytest

from headwater.console.certs import told_of
from headwater.security.authority import make_authority, read_certificate, read_denied
from tests.console.flows import Command


@pytest.fixture
def home(headwater: Command, tmp_path: Path) -> Path:
    """A cluster's authority with a node and a user."""
    directory = tmp_path / "cluster"
    for words in (
        ("init", directory),
        ("node", directory, "--name", "gw1", "--address", "gw1.local,10.0.0.1"),
        ("user", directory, "--name", "ann", "--role", "submit"),
    ):
        done = headwater("certs", *words)
        assert done.exit_code == 0, done.output
        assert "valid until" in done.stdout
    return directory


def test_a_certificate_is_shown_with_holder_role_addresses_and_expiry(headwater: Command, home: Path) -> None:
    node = orjson.loads(headwater("certs", "show", home / "nodes" / "gw1" / "node.pem", "--json").stdout)
    user = orjson.loads(headwater("certs", "show", home / "users" / "ann" / "user.pem", "--json").stdout)
    assert (node["kind"], node["name"], node["addresses"]) == ("node", "gw1", ["gw1.local", "10.0.0.1"])
    assert (user["kind"], user["name"], user["role"], user["state"]) == ("user", "ann", "submit", "valid")
    assert (node["days_left"], user["days_left"]) == (364, 89)
    assert "authority" in headwater("certs", "show", home / "ca.pem").stdout


def test_what_exists_is_refused_in_one_sentence(headwater: Command, home: Path) -> None:
    done = headwater("certs", "init", home)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "ca.key exists and is not overwritten" in done.stderr


def test_without_an_authority_nothing_is_signed(headwater: Command, tmp_path: Path) -> None:
    done = headwater("certs", "user", tmp_path, "--name", "ann", "--role", "see")
    assert done.exit_code == 1
    assert "ca.pem cannot be read: No such file or directory" in done.stderr


def test_an_unknown_role_is_refused(headwater: Command, home: Path) -> None:
    assert headwater("certs", "user", home, "--name", "bob", "--role", "god").exit_code == 2


def test_a_node_is_renewed_and_denied_by_its_name(headwater: Command, home: Path) -> None:
    renewed = orjson.loads(headwater("certs", "renew", home, "--name", "gw1", "--days", "700", "--json").stdout)
    assert renewed["days_left"] == 699
    assert renewed["id"] in headwater("certs", "deny", home, "--name", "gw1").stdout
    again = orjson.loads(headwater("certs", "deny", home, "--name", "gw1", "--json").stdout)
    assert again == {"id": renewed["id"], "file": str(home / "denied")}
    assert {one.hex() for one in read_denied(home / "denied")} == {renewed["id"]}
    assert "neither a node nor a user" in headwater("certs", "deny", home, "--name", "gw9").stderr
    assert "either --name or --id" in headwater("certs", "deny", home).stderr


def test_a_certificate_of_yesterday_is_told_to_be_expired(tmp_path: Path) -> None:
    then = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    signed = read_certificate(make_authority(tmp_path, now=then).issue_node("a", ["a"], days=1, now=then) / "node.pem")
    assert told_of(signed, then)["state"] == "valid"
    assert told_of(signed, then + dt.timedelta(days=2))["state"] == "expired"
    assert told_of(signed, then - dt.timedelta(days=2))["state"] == "not yet valid"
