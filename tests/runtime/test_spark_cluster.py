"""A node on a real standalone Spark cluster: master and worker are processes of their own, started by the test."""

import socket
import subprocess
import sys

import pytest

from tests.runtime.cluster import Cluster
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


def test_what_is_no_master_is_given_up_with_one_sentence() -> None:
    """It accepts connections and says nothing; Spark alone would try for a minute and fill pages."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        script = f"""
import headwater.runtime.spark
from headwater.runtime.config import NodeConfig
from headwater.runtime.node import Node
headwater.runtime.spark.REGISTER_S = 2.0
Node(NodeConfig(spark_master="spark://127.0.0.1:{silent.getsockname()[1]}")).start()
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "does not answer as a Spark master does, and was given up after 2 s" in done.stderr.splitlines()[-1]
