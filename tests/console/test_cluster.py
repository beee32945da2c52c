"""`headwater cluster` and the verbs against it, as somebody types them who tries it out."""

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headwater.client.cluster import Cluster
from tests.console.daemons import Daemon
from tests.console.flows import Command, Start
from tests.runtime.flows import by_sensor, expected_sums
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes, free_port, free_ports
from tests.runtime.service.sums import rows_of, write_sums
from tests.runtime.test_metrics import scraped

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
    explained = at(second, "explain", "verbs")
    assert [one["name"] for one in explained["operators"] if one["role"] == "source"] == ["made"]
    assert (explained["flow"], explained["app"], explained["owner"]) == ("verbs", "verbs", first)
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
    explained = headwater("explain", "seen", "--to", three[2], "--insecure").stdout
    for words in ("seen: ", "Operators", "made", "Routes", "key(sensor)"):
        assert words in explained, explained
    headwater("stop", "seen", "--to", three[2], "--insecure")


def test_whoever_waits_for_several_flows_of_a_file_gets_one_object(three: list[str], at: Any, tmp_path: Path) -> None:
    flow = tmp_path / "several.py"
    flow.write_text(
        "import headwater as hw\n"
        "a = hw.flow('a', hw.read.iterable([{'n': 1}]).sink(hw.to.nothing()))\n"
        "b = hw.flow('b', hw.read.iterable([{'n': 1}, {'n': 2}]).sink(hw.to.nothing()))\n"
    )
    told = at(three[0], "submit", flow, "--wait")["apps"]
    assert [(app["name"], app["state"], app["rows_out"]) for app in told] == [
        ("a", "finished", 1),
        ("b", "finished", 2),
    ]
    for name in ("a", "b"):
        at(three[1], "stop", name)


def test_an_upgrade_keeps_what_submit_was_told_and_says_so(
    three: list[str], headwater: Command, tmp_path: Path
) -> None:
    to = ("--to", three[1], "--insecure")
    told = ("--rate", "500", "--rows", "1000000", "--sink", tmp_path / "words.json", "--set", "seed=3")
    assert headwater("submit", "storm.word_count", "--name", "words", *told, *to).exit_code == 0
    checked = headwater("upgrade", "words", "storm.word_count", "--rate", "700", "--check", *to)
    stays = f"stays as it was told: --rows 1000000, --sink {tmp_path / 'words.json'}, --set seed=3"
    assert stays in checked.stdout, checked.output
    anew = headwater("upgrade", "words", "storm.word_count", "--fresh-options", "--check", *told[-4:], *to)
    assert anew.stdout.endswith(f"told: --sink {tmp_path / 'words.json'}, --set seed=3\n"), anew.output
    headwater("stop", "words", *to)


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


def test_what_flows_print_is_not_among_the_events_of_a_cluster(tmp_path: Path) -> None:
    """Neither when they are built, nor their functions, nor a sink that is the console of the node."""
    flow = tmp_path / "prints.py"
    flow.write_text(
        "import headwater as hw\n"
        "print('built')\n"
        "def shown(row: hw.Row) -> hw.Row:\n"
        "    print('ran')\n"
        "    return row\n"
        "flow = hw.flow('prints', hw.read.iterable([{'n': 77}]).map(shown).sink(hw.to.console()))\n"
    )
    with Daemon("cluster", 1, "--no-spark") as cluster:
        with Cluster(cluster.until("ready")["submit"].split()[-1], insecure=True) as client:
            client.submit(flow)
            client.wait("prints", PATIENCE_S)
        cluster.process.send_signal(signal.SIGTERM)
        cluster.until("stopping")
        printed = cluster.ended()[1].split()
    assert {"built", "ran", "77"} <= set(printed)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("status", "nothing"), "there is no app 'nothing'"),
        (("stop", "nothing"), "there is no app 'nothing'"),
        (("explain", "nothing"), "there is no app 'nothing'"),
        (("explain", "nothing", "--svg", "nothing.svg"), "--svg are for flows here"),
        (("drain", "10.9.9.9:1"), "is not known here"),
        (("drain", "f"), "give its address, or at least the first 4 digits of its id"),
        (("upgrade", "nothing", "no-such-file.py", "--patience", "0s"), "a patience of 0 s is none; give more than 0"),
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


def test_people_see_which_node_is_away_and_that_the_ledger_lacks_its_part(headwater: Command, tmp_path: Path) -> None:
    with FewNodes(tmp_path) as few:
        few.add()
        few.add()
        away, to = few.nodes[1].own.address, ("--to", few.nodes[0].own.address, "--insecure")
        flow = write_sums(tmp_path, "seen", tmp_path / "out.json", 500)
        assert headwater("submit", flow, *to, "--at", f"made={away}", "--wait").exit_code == 0
        few.stop(1)
        told = headwater("status", "seen", *to).stdout
        for words in (
            "nodes away",
            "ledger is incomplete (1 node is silent)",
            f"source made on {away}",
            f"silent: {away}",
        ):
            assert words in told, told


def test_whoever_waits_for_an_app_hears_once_what_it_lacks_and_when_it_goes_on(start: Start, tmp_path: Path) -> None:
    lines, flow = tmp_path / "lines.json", tmp_path / "copying.py"
    flow.write_text(
        "import headwater as hw\n"
        f"flow = hw.flow('copying', hw.read.json({str(lines)!r}, name='lines').sink(hw.to.nothing()))\n"
    )
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        waiting = start("submit", flow, "--to", few.nodes[0].own.address, "--insecure", "--wait")
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(
            "waiting until all rows of copying are out; Ctrl-C ends the waiting"
        )
        lacks = waiting.stderr.readline()
        assert lacks.startswith("copying is troubled: ")
        assert f"source 'lines' cannot be opened: {lines}" in lacks
        lines.write_text('{"n": 1}\n')
        told, after = waiting.communicate(timeout=PATIENCE_S)
        assert (waiting.returncode, "finished" in told) == (0, True)
        assert [line.split()[:2] for line in after.splitlines()] == [["copying", "is"]]


def test_a_wait_of_which_nothing_comes_ends_with_a_sentence_and_an_exit_code(
    headwater: Command, tmp_path: Path
) -> None:
    flow = tmp_path / "copying.py"
    flow.write_text(
        "import headwater as hw\n"
        f"flow = hw.flow('copying', hw.read.json({str(tmp_path / 'no.json')!r}, name='no').sink(hw.to.nothing()))\n"
    )
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        few.add()
        at = ("--to", few.nodes[0].own.address, "--insecure", "--timeout", "1s")
        submitted = headwater("submit", flow, *at, "--wait")
        assert submitted.exit_code == 1
        assert re.search(
            "error: copying is troubled, and nothing has come of it for 1 s: .*source 'no' cannot be opened.*"
            "It goes on without this command: `headwater status copying` tells how it is",
            submitted.stderr,
        )


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


def test_nodes_in_processes_of_their_own_log_to_files_of_their_own(tmp_path: Path) -> None:
    """Each puts its file aside when it is full, and must not put aside what another writes."""
    with Daemon("cluster", 2, "--processes", "--no-spark", "--log-file", tmp_path / "nodes.log") as cluster:
        cluster.until("ready")
        assert cluster.stop() == (0, "")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["nodes-node-01.log", "nodes-node-02.log", "nodes.log"]


def test_a_node_that_is_drained_is_said_to_have_left_and_that_is_no_failure(headwater: Command, tmp_path: Path) -> None:
    with Daemon("cluster", 2, "--processes", "--no-spark", temporary=tmp_path) as cluster:
        cluster.until("ready")
        addresses = cluster.all_that("listening", "address")
        assert headwater("drain", addresses[1], "--to", addresses[0], "--insecure").exit_code == 0
        assert cluster.until("a node has left")["address"] == addresses[1]
        assert cluster.stop() == (0, "")


def test_whoever_waits_for_a_node_to_leave_hears_that_it_stays(
    headwater: Command, start: Start, tmp_path: Path
) -> None:
    """To look how far it is must not make it leave again."""
    with FewNodes(tmp_path) as few:
        few.add()
        few.add()
        address, to = few.nodes[1].own.address, ("--to", few.nodes[0].own.address, "--insecure")
        few.nodes[1].keeping.drain(True)  # nothing else is told, so that it does not come to an end
        waiting = start("drain", address, *to)
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith(f"{address} is leaving")
        assert headwater("drain", address, "--cancel", *to).stdout == f"{address} stays\n"
        _, told = waiting.communicate(timeout=PATIENCE_S)
        assert (waiting.returncode, f"{address} does not leave: somebody lets it stay" in told) == (1, True)
        assert not few.nodes[1].keeping.is_draining


def test_a_node_among_several_of_one_process_that_is_drained_ends(headwater: Command) -> None:
    with Daemon("cluster", 2, "--no-spark") as cluster:
        cluster.until("ready")
        addresses = cluster.all_that("listening", "address")
        assert headwater("drain", addresses[1], "--to", addresses[0], "--insecure").exit_code == 0
        assert cluster.until("a node has left")["address"] == addresses[1]
        refused = headwater("nodes", "--to", addresses[1], "--insecure")
        assert (refused.exit_code, "Connection refused" in refused.stderr) == (1, True)


def test_nodes_whose_data_is_kept_go_on_where_they_were_though_nobody_says_the_port(tmp_path: Path) -> None:
    """Apps wait for them at the addresses that they had."""
    words = ("cluster", 2, "--no-spark", "--data", tmp_path / "data")
    with Daemon(*words) as cluster:
        cluster.until("ready")
        first, second = sorted(cluster.all_that("listening", "address"))
        with Cluster(first, insecure=True) as client:
            client.submit(write_sums(tmp_path, "sums", tmp_path / "out.json", 3_000, rate=1_000), at={"made": second})
            while client.status("sums").rows_out < 200:
                pass
        assert cluster.stop() == (0, "")
    with Daemon(*words) as cluster:
        cluster.until("ready")
        assert sorted(cluster.all_that("listening", "address")) == [first, second]
        with Cluster(second, insecure=True) as client:
            assert client.wait("sums", PATIENCE_S).state == "finished"
        assert cluster.stop()[0] == 0
    assert by_sensor(rows_of(tmp_path / "out.json")) == expected_sums(3_000)


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


@pytest.fixture
def left() -> Iterator[Path]:
    """A temporary directory with what a cluster has left there that was killed."""
    with tempfile.TemporaryDirectory(prefix="t-") as short:  # sockets are in it, whose paths must be short
        place = Path(short)
        with Daemon("cluster", 1, "--no-spark", temporary=place) as cluster:
            cluster.until("ready")
            cluster.kill()
        assert sorted(directory.name.split("-")[1] for directory in place.iterdir()) == ["cluster", "run"]
        yield place


@pytest.mark.parametrize("command", ["cluster", "node", "run"])
def test_what_a_killed_one_has_left_is_deleted_by_the_next(left: Path, tmp_path: Path, command: str) -> None:
    """Whatever the next one is."""
    words: dict[str, tuple[object, ...]] = {
        "cluster": (1,),
        "node": ("--insecure", "--listen", f"127.0.0.1:{free_port()}", "--data", tmp_path / "data"),
        "run": (write_sums(tmp_path, "sums", tmp_path / "out.json", 100),),
    }
    with Daemon(command, *words[command], "--no-spark", temporary=left) as following:
        if command != "run":
            following.until("listening")
            following.process.send_signal(signal.SIGTERM)
        assert following.ended()[0] == 0
    assert list(left.iterdir()) == []


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


@pytest.mark.parametrize("how", [[], ["--processes"]])
def test_what_is_said_of_their_engines_reaches_all_nodes(how: list[str]) -> None:
    """In one process or in several: each serves its own metrics, which tell its budgets and its policy."""
    first = free_ports(2)
    engine = ["--memory", "1MB", "--disk", "8MB", "--policy", "round-robin", "--consume", "7", "--metrics", first]
    with Daemon("cluster", 2, "--no-spark", *how, *engine) as cluster:
        cluster.until("ready")
        for port in (first, first + 1):
            values = scraped(f"http://127.0.0.1:{port}/metrics")
            budgets = [values[f"headwater_{name}_budget_bytes", ()] for name in ("memory", "disk")]
            assert budgets == [1 << 20, 8 << 20]
            assert values["headwater_node_info", (("policy", "round-robin"), ("pressure", "flowing"))] == 1


def test_engines_that_cannot_be_are_refused_before_anything_starts(headwater: Command) -> None:
    for words, told in (
        (["--memory", "much"], "'much' is not a size"),
        (["--policy", "fair"], "no such policy; there are longest-queue"),
    ):
        result = headwater("cluster", 1, "--no-spark", *words)
        assert result.exit_code == 1
        assert told in result.stderr
