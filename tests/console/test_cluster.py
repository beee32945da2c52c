"""`headwater cluster` and the verbs against it, as somebody types them who tries it out."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headwater.runtime.service.client import Cluster
from tests.console.daemons import Daemon
from tests.console.flows import Command
from tests.runtime.flows import by_sensor, expected_sums
from tests.runtime.service.few_nodes import PATIENCE_S, free_port, free_ports
from tests.runtime.service.sums import rows_of, write_sums

ENDLESS: Final = 10**9


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The addresses of three nodes in as many zones, by zone; each is a process of its own."""
    with Daemon("cluster", 3, "--zones", 3, "--processes", "--no-spark") as cluster:
        cluster.until("ready")
        zones = zip(cluster.all_that("listening", "zone"), cluster.all_that("listening", "address"), strict=True)
        yield [address for _, address in sorted(zones)]
        assert cluster.stop() == (0, "")


@pytest.fixture
def at(headwater: Command) -> Any:
    """Return the command against a node, whose answer is JSON."""

    def ask(address: str, *words: object) -> Any:
        result = headwater(*words, "--to", address, "--insecure", "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return ask


def test_every_verb_answers_at_every_node(three: list[str], at: Any, tmp_path: Path) -> None:
    """Submitted at one, looked at through another, upgraded and stopped through a third; each answer is JSON."""
    first, second, third = three
    flow = write_sums(tmp_path, "verbs", tmp_path / "out.json", ENDLESS, rate=200)
    told = at(first, "submit", flow, "--at", f"made={second}")
    assert told["submitted"][0]["owner"] == first
    assert {(node["address"], node["zone"]) for node in at(second, "nodes")["nodes"]} == {
        (first, "zone-1"),
        (second, "zone-2"),
        (third, "zone-3"),
    }
    with Cluster(second, insecure=True) as cluster:
        while cluster.status("verbs").rows_out < 100:
            pass
    status = at(third, "status", "verbs")
    assert (status["name"], status["state"], status["version"]) == ("verbs", "running", 1)
    sources = {source["name"]: part["node"] for part in status["parts"] for source in part["sources"]}
    sinks = [(sink["guarantee"], part["node"]) for part in status["parts"] for sink in part["sinks"]]
    assert (sources, [node for _, node in sinks]) == ({"made": second}, [first])
    assert all(guarantee for guarantee, _ in sinks)
    assert [app["name"] for app in at(third, "apps")["apps"]] == ["verbs"]
    assert at(second, "upgrade", "verbs", flow, "--check")["kept"]
    assert at(third, "upgrade", "verbs", flow)["version"] == 2
    assert isinstance(at(second, "logs")["lines"], list)
    assert at(third, "stop", "verbs") == {"type": "stopped", "app": "verbs"}
    assert at(first, "apps")["apps"] == []


def test_people_see_the_tree_of_an_app_with_rates_guarantees_and_its_ledger(
    three: list[str], headwater: Command, tmp_path: Path
) -> None:
    flow = write_sums(tmp_path, "seen", tmp_path / "out.json", 2_000)
    told = headwater("submit", flow, "--to", three[0], "--insecure", "--at", f"made={three[1]}", "--wait").stdout
    for words in ("seen", "finished", "the app's tree", "└─ ", "▸ made", "◂ ", "rows/s", "p99 ms", "ledger balances"):
        assert words in told, told
    headwater("stop", "seen", "--to", three[2], "--insecure")


def test_what_a_flow_prints_holds_up_no_node(three: list[str], at: Any, tmp_path: Path) -> None:
    """More than a pipe holds, and in one line."""
    flow = tmp_path / "prints.py"
    flow.write_text(
        "import headwater as hw\nimport os\n"
        "os.write(1, b'x' * 300_000)\n"
        "flow = hw.flow('prints', hw.read.iterable([{'n': 1}]).sink(hw.to.nothing()))\n"
    )
    with Cluster(three[0], insecure=True) as cluster:
        for name in ("one", "two", "three"):
            cluster.submit(flow, name=name, at={"iterable": three[1]})
            assert cluster.wait(name, PATIENCE_S).rows_out == 1
            cluster.stop(name)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("status", "nothing"), "there is no app 'nothing'"),
        (("stop", "nothing"), "there is no app 'nothing'"),
        (("drain", "10.9.9.9:1"), "is not known here"),
        (("submit", "no-such-file.py"), "no-such-file.py"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_an_exit_code(
    three: list[str], headwater: Command, words: tuple[str, ...], reason: str
) -> None:
    result = headwater(*words, "--to", three[0], "--insecure")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert reason in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_node_that_is_not_there_is_named(headwater: Command) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = headwater("apps", "--to", address, "--insecure")
    assert (result.exit_code, address in result.stderr) == (1, True)


# --- their end --------------------------------------------------------------------------------------------------------


def test_a_node_that_dies_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    with Daemon("cluster", 3, "--processes", "--no-spark", temporary=tmp_path) as cluster:
        cluster.until("ready")
        addresses, pids = cluster.all_that("listening", "address"), cluster.all_that("listening", "pid")
        os.kill(pids[1], signal.SIGKILL)
        died = cluster.until("a node has died (signal SIGKILL)")
        assert (died["address"], died["nodes"]) == (addresses[1], 2)
        with Cluster(addresses[2], insecure=True) as client:
            assert addresses[0] in [node.address for node in client.nodes().nodes]
        code, told = cluster.stop()
    assert (code, told.splitlines()[-1]) == (1, "error: 1 node of 3 died, as was said above")
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_is_drained_is_said_to_have_left_and_that_is_no_failure(headwater: Command, tmp_path: Path) -> None:
    with Daemon("cluster", 2, "--processes", "--no-spark", temporary=tmp_path) as cluster:
        cluster.until("ready")
        addresses = cluster.all_that("listening", "address")
        assert headwater("drain", addresses[1], "--to", addresses[0], "--insecure").exit_code == 0
        assert cluster.until("a node has left")["address"] == addresses[1]
        assert cluster.stop() == (0, "")


def test_a_node_among_several_of_one_process_that_is_drained_ends(headwater: Command) -> None:
    with Daemon("cluster", 2, "--no-spark") as cluster:
        cluster.until("ready")
        addresses = cluster.all_that("listening", "address")
        assert headwater("drain", addresses[1], "--to", addresses[0], "--insecure").exit_code == 0
        assert cluster.until("a node has left")["address"] == addresses[1]
        refused = headwater("nodes", "--to", addresses[1], "--insecure")
        assert (refused.exit_code, "Connection refused" in refused.stderr) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_no_process_and_no_file_of_it_is_left(tmp_path: Path, number: signal.Signals) -> None:
    """Its nodes share its standard error, so that it ends only with the last of them."""
    with Daemon("cluster", 2, "--processes", "--no-spark", temporary=tmp_path) as cluster:
        cluster.until("ready")
        assert list(tmp_path.iterdir()) != []
        cluster.process.send_signal(number)
        code, _ = cluster.ended()
    assert code == (-number if number is signal.SIGKILL else 0)
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_ends_it_with_the_reason_and_nothing_is_left(tmp_path: Path) -> None:
    with Daemon("cluster", 1, "--no-spark") as other:
        taken = int(other.until("listening")["address"].rpartition(":")[2])
        with Daemon("cluster", 2, "--processes", "--no-spark", "--port", taken, temporary=tmp_path) as cluster:
            code, told = cluster.ended()
        assert code == 1
        assert f"port {taken} of 127.0.0.1 cannot be opened" in told
        assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_a_cluster_on_spark_that_is_killed_goes_on_where_it_stood(tmp_path: Path) -> None:
    """Three nodes that share one Spark: kill -9 in mid-run, started again on the same data, every row is there once."""
    out, port = tmp_path / "out.json", free_ports(3)
    words = ("cluster", 3, "--data", tmp_path / "data", "--port", port)
    with Daemon(*words) as cluster:
        first = cluster.until("ready")["submit"].split()[-1]
        second = cluster.all_that("listening", "address")[1]
        with Cluster(first, insecure=True) as client:
            client.submit(write_sums(tmp_path, "sums", out, 6_000, rate=1_000), at={"made": second})
            while client.status("sums").rows_out < 1_000:
                pass
        cluster.kill()
    with Daemon(*words) as cluster:
        cluster.until("ready")
        with Cluster(second, insecure=True) as client:
            status = client.wait("sums", PATIENCE_S)
        assert cluster.stop()[0] == 0
    assert by_sensor(rows_of(out)) == expected_sums(6_000)
    assert (status.is_balanced, status.rows_in) == (True, 6_000)
