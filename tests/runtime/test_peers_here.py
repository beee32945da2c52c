"""A machine that carries several peers: what each of them is told, and what is refused."""

from pathlib import Path

import pytest

from headwater.model.errors import ConfigError
from headwater.runtime.peers_here import settings_of_peers
from headwater.runtime.settings import NodeSettings, read_settings


def machine(data: Path, peers: int, **more: object) -> NodeSettings:
    """Return the settings of a machine."""
    return NodeSettings(**{"listen": "127.0.0.1:7100", "insecure": True, "data": data, "peers": peers, **more})  # type: ignore[arg-type]


def test_a_single_peer_is_told_what_the_machine_was_told(tmp_path: Path) -> None:
    assert settings_of_peers(machine(tmp_path, 1)) == [machine(tmp_path, 1)]


def test_peers_share_a_machine_and_have_ports_and_directories_of_their_own(tmp_path: Path) -> None:
    each = settings_of_peers(machine(tmp_path, 3, capacity=20, workers=7, advertise="localhost:8100"))
    assert [one.listen for one in each] == ["127.0.0.1:7100", "127.0.0.1:7101", "127.0.0.1:7102"]
    assert [one.advertise for one in each] == ["localhost:8100", "localhost:8101", "localhost:8102"]
    assert [one.data for one in each] == [tmp_path / name for name in ("peer-01", "peer-02", "peer-03")]
    assert [one.capacity for one in each] == [7, 7, 6]
    assert {(one.workers, one.peers) for one in each} == {(2, 1)}


def test_peers_divide_the_budgets_of_a_machine_and_serve_metrics_on_ports_in_a_row(tmp_path: Path) -> None:
    said = {"memory": 90 << 20, "disk": 900 << 20, "metrics": "127.0.0.1:9100", "policy": "random", "consume": "half"}
    each = settings_of_peers(read_settings({"insecure": True, "data": tmp_path, "peers": 3, **said}, {}))
    assert {(one.memory, one.disk) for one in each} == {(30 << 20, 300 << 20)}
    assert [one.metrics for one in each] == ["127.0.0.1:9100", "127.0.0.1:9101", "127.0.0.1:9102"]
    assert {(one.policy.value, one.consume) for one in each} == {("random", "half")}


def test_any_port_stays_any_port(tmp_path: Path) -> None:
    assert {one.listen for one in settings_of_peers(machine(tmp_path, 2, listen="127.0.0.1:0"))} == {"127.0.0.1:0"}


@pytest.mark.parametrize(("capacity", "peers"), [(8, 1), (40, 5), (1_000, 8)])
def test_auto_is_one_for_every_eight_operators(tmp_path: Path, capacity: int, peers: int) -> None:
    said = {"peers": "auto", "capacity": capacity, "insecure": True, "data": tmp_path}
    assert len(settings_of_peers(read_settings(said, {}))) == peers


@pytest.mark.parametrize("peers", ["many", "-1", "9"])
def test_a_number_of_peers_that_cannot_be_is_refused(peers: str) -> None:
    with pytest.raises(ConfigError, match="peers"):
        read_settings({"peers": peers, "insecure": True, "capacity": 100}, {})


def test_more_peers_than_operators_are_refused() -> None:
    with pytest.raises(ConfigError, match="room for 2 operators carries 1 to 2 peers, not 3"):
        NodeSettings(insecure=True, capacity=2, peers=3)


def test_several_peers_do_not_share_a_cluster_elsewhere() -> None:
    with pytest.raises(ConfigError, match="take --peers or --spark-master away"):
        NodeSettings(insecure=True, peers=2, spark_master="spark://master:7077")


def test_each_peer_needs_a_key_of_its_own(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    (certs / "peer-01").mkdir(parents=True)
    told = r"certs has no peer-02.*headwater certs node AUTHORITY --name NAME-02 --address HOST.*copy it to .*peer-02"
    with pytest.raises(ConfigError, match=told):
        settings_of_peers(machine(tmp_path, 2, insecure=False, certs=certs))
    (certs / "peer-02").mkdir()
    each = settings_of_peers(machine(tmp_path, 2, insecure=False, certs=certs))
    assert [one.certs for one in each] == [certs / "peer-01", certs / "peer-02"]


def test_rows_of_another_number_of_peers_are_not_left_behind(tmp_path: Path) -> None:
    """Fewer would not find all; one that was alone kept them elsewhere."""
    (tmp_path / "many" / "peer-03").mkdir(parents=True)
    (tmp_path / "alone" / "store").mkdir(parents=True)
    for data, peers, told in (("many", 2, "of 3 peers"), ("many", 1, "of 3 peers"), ("alone", 2, "of 1 peer, ")):
        with pytest.raises(ConfigError, match=f"{told}.*another --data"):
            settings_of_peers(machine(tmp_path / data, peers))
    assert len(settings_of_peers(machine(tmp_path / "many", 4))) == 4
    assert len(settings_of_peers(machine(tmp_path / "alone", 1))) == 1
