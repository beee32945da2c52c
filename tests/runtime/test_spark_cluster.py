"""A node on a real standalone Spark cluster: master and worker are processes of their own, started by the test."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from headwater.model.errors import ConfigError
from headwater.spark.standalone import SECRET_FILE, cluster_secret
from tests.runtime.cluster import Cluster, running_cluster
from tests.runtime.flows import expected_sums
from tests.runtime.own_process import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 6_000


def test_the_clusters_executors_run_the_turns_and_epochs_hand_over(standalone_cluster: Cluster) -> None:
    """They are on this machine, so they use the store as the node's own workers do; the rows are the same."""
    settings = {"workers": 2, "spark_master": standalone_cluster.master}
    outcome = run(settings, rows=ROWS, epochs=3)
    assert outcome.error == ""
    assert outcome.sums == expected_sums(ROWS)
    assert outcome.balanced
    assert outcome.epochs == 3
    assert outcome.slots == 8
    assert len(outcome.workers) == 2
    for worker in outcome.workers:
        assert set(standalone_cluster.worker_pids) & set(worker), "it does not descend from the cluster's worker"
        assert outcome.driver not in worker


def test_executors_without_the_store_do_the_same_even_when_killed(standalone_cluster: Cluster) -> None:
    """Rows and state travel over TLS, and a worker killed in mid-run is replaced by Spark."""
    settings = {"workers": 2, "spark_master": standalone_cluster.master, "remote_port": "always"}
    outcome = run(settings, rows=ROWS, kills=4)
    assert outcome.error == ""
    assert outcome.kills > 0  # how many there is time for, the machine decides
    assert outcome.sums == expected_sums(ROWS)
    assert outcome.balanced
    for worker in outcome.workers:
        assert set(standalone_cluster.worker_pids) & set(worker), "it does not descend from the cluster's worker"


def test_a_cluster_that_authenticates_is_used_with_its_secret_and_refuses_who_has_another(tmp_path: Path) -> None:
    """The secret comes from a file, and is on no command line, neither of the driver nor of the executors."""
    secret, other = tmp_path / "secret", tmp_path / "other"
    for path in (secret, other):
        path.touch(mode=0o600)
        path.write_text(f"{secrets.token_hex(32)}\n")
    with running_cluster(tmp_path, secret=secret.read_text().strip()) as cluster:
        settings = {"workers": 2, "spark_master": cluster.master}
        outcome = run(settings, rows=ROWS, environment={SECRET_FILE: str(secret)})
        assert (outcome.error, outcome.sums, outcome.balanced) == ("", expected_sums(ROWS), True)
        assert outcome.commands, "of the driver, its JVM, the executor and the workers"
        assert not [one for one in outcome.commands if secret.read_text().strip() in one]
        refused = _failure_to_start(cluster.master, environment={SECRET_FILE: str(other)})
    assert "does not answer as a Spark master does" in refused


@pytest.mark.parametrize("held", [b"", b"two words", b"\xff\xfe", b"x" * 5_000])
def test_a_file_that_holds_no_secret_is_refused_by_its_name(tmp_path: Path, held: bytes) -> None:
    """What is in it is not told."""
    path = tmp_path / "secret"
    path.write_bytes(held)
    with pytest.raises(ConfigError, match=str(path)) as refused:
        cluster_secret({SECRET_FILE: str(path)})
    assert "words" not in str(refused.value)


def test_without_a_named_file_there_is_no_secret_and_a_missing_file_is_told(tmp_path: Path) -> None:
    """A cluster without a secret is used as before."""
    assert cluster_secret({}) is None
    with pytest.raises(ConfigError, match="No such file"):
        cluster_secret({SECRET_FILE: str(tmp_path / "none")})


def test_what_is_no_master_is_given_up_with_one_sentence() -> None:
    """It accepts connections and says nothing; Spark alone would try for a minute and fill pages."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        failure = _failure_to_start(f"spark://127.0.0.1:{silent.getsockname()[1]}")
    assert "does not answer as a Spark master does, and was given up after 2 s" in failure


def _failure_to_start(master: str, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the last line that a node says which cannot start on this master, and is not patient."""
    script = f"""
import headwater.spark.session
from headwater.workers.config import NodeConfig
from headwater.runtime.node import Node
headwater.spark.session.REGISTER_S = 2.0
Node(NodeConfig(spark_master={master!r})).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]
