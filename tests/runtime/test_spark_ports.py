"""Other users of the machine reach every port on its loopback address; Spark's do nothing for who has no secret."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.runtime.strangers import (
    Port,
    callback_command,
    descendants,
    gateway_command,
    listening_ports,
    listening_sockets,
    rpc_request_with,
)

pytestmark = [pytest.mark.spark, pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs /proc")]

STRANGE = "org.example.chosen.by.a.Stranger"


@pytest.fixture
def spark_of(spark_node: Node) -> SparkPool:
    """The Spark of a node, with all ports that it ever opens."""
    pool = spark_node.pool
    assert isinstance(pool, SparkPool)
    context: Any = pool.session.sparkContext
    start_callbacks: Any = java_gateway.ensure_callback_server_started  # as the first function that the JVM calls does
    start_callbacks(context._gateway)
    return pool


def _driver_port(pool: SparkPool) -> Port:
    conf = pool.session.sparkContext.getConf()
    return Port(str(conf.get("spark.driver.host")), int(str(conf.get("spark.driver.port"))))


def test_the_rpc_port_refuses_a_strangers_frame_before_it_reads_the_object_in_it(spark_of: SparkPool) -> None:
    """Who reads a Java object looks up its class; a port that does so names the class that it has not found."""
    port = _driver_port(spark_of)
    assert port in listening_ports(spark_of.jvm_pid)
    answer = port.answer_to(rpc_request_with(STRANGE, port))
    assert STRANGE.encode() not in answer
    assert b"ClassNotFound" not in answer
    assert b"readObject" not in answer, "it has begun to read the object"


def test_no_port_of_the_jvm_or_of_ours_does_anything_for_a_stranger(spark_of: SparkPool) -> None:
    """All are on the loopback address, and refuse Spark's frames, and commands of py4j in both directions."""
    ports = {pid: listening_ports(pid) for pid in (spark_of.jvm_pid, os.getpid())}
    assert len(ports[spark_of.jvm_pid]) >= 3, "RPC, blocks, py4j"
    assert ports[os.getpid()], "py4j's callbacks"
    for port in ports[spark_of.jvm_pid]:
        assert port.host == "127.0.0.1", port
        assert b"ClassNotFound" not in port.answer_to(rpc_request_with(STRANGE, port)), port
        answer = port.answer_to(gateway_command())
        assert b"Authentication error" in answer or answer == b"", f"{port} said {answer!r}"
    for port in ports[os.getpid()]:
        assert port.host in {"127.0.0.1", "::1"}, port
        answer = port.answer_to(callback_command())
        assert b"Authentication error" in answer or answer == b"", f"{port} said {answer!r}"


def test_unix_sockets_lie_where_only_our_user_comes(spark_of: SparkPool) -> None:
    """They have no secret: what arrives on one of them is unpickled, or tells a worker what to run."""
    processes = {os.getpid(), *descendants(spark_of.jvm_pid)}
    sockets = [path for pid in processes for path in listening_sockets(pid)]
    assert len(sockets) >= 3, "of the node, of accumulators, of the daemon of Python workers"
    for path in sockets:
        place = path.parent.stat()
        assert (place.st_uid, place.st_mode & 0o077) == (os.getuid(), 0), path


def test_no_command_line_tells_a_secret(spark_of: SparkPool) -> None:
    """Every user can read command lines; what Spark tells of its settings does not have it either."""
    context: Any = spark_of.session.sparkContext
    hadoop = context._jvm.org.apache.hadoop
    kept = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = bytes(kept.getSecretKey(hadoop.io.Text("sparkCookie"))).decode()
    known = [secret, context._gateway.gateway_parameters.auth_token]
    assert all(len(one) >= 32 for one in known)
    shown = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (os.getpid(), spark_of.jvm_pid)]
    shown.append(context.getConf().toDebugString())
    assert not [one for one in known for text in shown if one in text]
