"""What a node is told, from three places: who wins, what is refused, and in which words."""

from pathlib import Path
from typing import Any

import pytest

from headwater.links.credentials import Insecure
from headwater.model.errors import ConfigError
from headwater.model.time import milliseconds
from headwater.runtime.settings import NodeSettings, read_settings


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('insecure = true\nzone = "file"\ncapacity = 1\njoin = ["127.0.0.1:1", "127.0.0.1:2"]\n')
    environment = {"HEADWATER_NODE_ZONE": "environment", "HEADWATER_NODE_CAPACITY": "2", "HEADWATER_DATA": "/apps"}
    found = read_settings({"config": file, "capacity": 3, "listen": None}, environment)
    assert found == NodeSettings(
        insecure=True, zone="environment", capacity=3, join=("127.0.0.1:1", "127.0.0.1:2"), listen="127.0.0.1:7100"
    )


def test_certificates_and_none_are_one_decision_of_the_place_that_goes_before(tmp_path: Path) -> None:
    file, insecure = tmp_path / "node.toml", {"HEADWATER_NODE_INSECURE": "1"}
    file.write_text('certs = "/etc/headwater/certs"\n')
    assert read_settings({"certs": Path("here"), "listen": "gw1:7100"}, insecure).certs == Path("here")
    assert read_settings({"config": file}, insecure).certs is None
    assert read_settings({"config": file}, {"HEADWATER_NODE_INSECURE": "0"}).certs == Path("/etc/headwater/certs")
    assert read_settings({"insecure": True}, {"HEADWATER_NODE_CERTS": "/etc/headwater/certs"}).insecure
    with pytest.raises(ConfigError, match="--certs and --insecure contradict"):
        read_settings({"insecure": True, "certs": Path("here")}, {})


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("insecure = true\ncapacity = 9\n")
    assert read_settings({}, {"HEADWATER_NODE_CONFIG": str(tmp_path / "node.toml")}).capacity == 9


def test_everything_can_be_said_as_text() -> None:
    said = {
        "LISTEN": "[::1]:7000",
        "ADVERTISE": "localhost:7000",
        "JOIN": "127.0.0.1:1, [::1]:2,",
        "ZONE": "north",
        "CAPACITY": "12",
        "DATA": "/var/lib/headwater",
        "SPARK_MASTER": "spark://master:7077",
        "INSECURE": "yes",
        "LINKS": "links.toml",
    }
    assert read_settings({}, {f"HEADWATER_NODE_{key}": value for key, value in said.items()}) == NodeSettings(
        listen="[::1]:7000",
        advertise="localhost:7000",
        join=("127.0.0.1:1", "[::1]:2"),
        zone="north",
        capacity=12,
        data=Path("/var/lib/headwater"),
        spark_master="spark://master:7077",
        insecure=True,
        links=Path("links.toml"),
    )


@pytest.mark.parametrize(
    ("command_line", "environment", "written", "told"),
    [
        ({"colour": "red"}, {}, "", "the command line sets 'colour', which is no setting of a node; there are: listen"),
        ({}, {"HEADWATER_NODE_ZONES": "a"}, "", r"the environment \(HEADWATER_NODE_...\) sets 'zones'"),
        ({}, {}, "lissten = 'a:1'", r"the file .*node\.toml sets 'lissten'"),
        ({}, {}, "capacity = true", r"sets capacity to True: a whole number is needed"),
        ({}, {}, "capacity = 2.5", "a whole number is needed"),
        ({}, {"HEADWATER_NODE_CAPACITY": "many"}, "", "sets capacity to 'many': a whole number is needed"),
        ({}, {}, "join = 'a:1'\ninsecure = 3", "sets insecure to 3: true or false is needed"),
        ({}, {}, "join = [1]", "a list of addresses is needed"),
        ({}, {}, "zone = ", "is not TOML"),
        ({}, {"HEADWATER_NODE_ZONE": ""}, "", "sets zone to '': a text is needed"),
        ({}, {}, "data = '~no-such-user/data'", "sets data to '~no-such-user/data': this user is not known here"),
        ({}, {}, r'data = "a\u0000b"', "no path has a zero byte"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(
    tmp_path: Path, command_line: dict[str, Any], environment: dict[str, str], written: str, told: str
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(written)
    with pytest.raises(ConfigError, match=told):
        read_settings({"config": file, **command_line}, environment)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "a node needs certificates: make them with `headwater certs init`.*--insecure does without"),
        ({"certs": Path("c"), "insecure": True}, "--certs and --insecure contradict"),
        ({"insecure": True, "listen": "10.0.0.1:1"}, r"works on this machine only, and --listen 10\.0\.0\.1 is not"),
        ({"insecure": True, "join": ("10.0.0.1:1",)}, r"and --join 10\.0\.0\.1 is not a loopback address"),
        ({"insecure": True, "advertise": "gw1:1"}, r"and --advertise gw1 is not a loopback address"),
        ({"certs": Path("c"), "listen": "0.0.0.0:7100"}, r"others cannot reach a node at 0\.0\.0\.0:7100.*--advertise"),
        (
            {"certs": Path("c"), "advertise": "gw1:0"},
            "others cannot reach a node at port 0; give --advertise gw1 the port",
        ),
        ({"certs": Path("c"), "listen": "here"}, "--listen 'here' is not an address"),
        ({"certs": Path("c"), "listen": "a:99999"}, "--listen 'a:99999' is not an address"),
        ({"certs": Path("c"), "join": ("there",)}, "--join 'there' is not an address"),
        ({"certs": Path("c"), "zone": "no/zone"}, "'no/zone' cannot be a zone name"),
        ({"certs": Path("c"), "capacity": 0}, "a capacity of 0 operators"),
        ({"certs": Path("c"), "spark_master": "yarn"}, "is not the master of a standalone Spark cluster"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_what_would(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        NodeSettings(**settings)


def test_the_file_of_the_command_line_goes_before_that_of_the_environment(tmp_path: Path) -> None:
    """As where the one in a unit or a container's image is not the one that is wanted."""
    (tmp_path / "node.toml").write_text("insecure = true\ncapacity = 9\n")
    environment = {"HEADWATER_NODE_CONFIG": str(tmp_path / "none.toml")}
    assert read_settings({"config": tmp_path / "node.toml"}, environment).capacity == 9


@pytest.mark.parametrize("written", ["", "~no-such-user/node.toml"])
def test_a_file_that_can_be_none_is_told(written: str) -> None:
    with pytest.raises(ConfigError, match=f"the configuration '{written}' cannot be read: "):
        read_settings({}, {"HEADWATER_NODE_CONFIG": written})


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the configuration .*none\.toml cannot be read: No such file"):
        read_settings({"config": tmp_path / "none.toml"}, {})


def test_settings_make_what_the_wire_needs(tmp_path: Path) -> None:
    (tmp_path / "links.toml").write_text("[default]\ndelay = '40ms'\n")
    found = NodeSettings(insecure=True, data=tmp_path / "data", listen="127.0.0.1:0", links=tmp_path / "links.toml")
    assert isinstance(found.credentials(), Insecure)
    assert found.credentials() == found.credentials()
    assert found.wire().listen == "127.0.0.1:0"
    links = found.link_table()
    assert links is not None
    assert links.default.delay == milliseconds(40)
