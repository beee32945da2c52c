"""Two flows that share something: the second is refused with a sentence that names the first, or both are exact.

Most pairs run on one node of this process, where locks are between open files as they are between processes.
"""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import headwater as hw
from headwater.connectors.files.tablesink import FIRST_PART
from headwater.dataflow.connectors import SinkSpec
from headwater.model.errors import ConfigError, ConnectorError, FlowError, StoreError
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.metrics import serve_metrics
from headwater.runtime.node import Node
from headwater.storage import locks
from headwater.workers.config import NodeConfig
from tests.runtime.pairs import PATIENCE_S, Shared, Two, endless, eventually, lines_of, read_lines

HOLDER: Final = rf"sink 'out' of app 'first' \(pid {os.getpid()} on {re.escape(socket.gethostname())}, since .* UTC\)"


@pytest.fixture
def node(thread_node: Node) -> Node:
    """A node on threads, without Spark."""
    return thread_node


# --- targets of sinks -------------------------------------------------------------------------------------------------


MAKERS: Final[dict[str, Callable[..., SinkSpec]]] = {
    ".csv": hw.to.csv,
    ".json": hw.to.json,
    ".txt": hw.to.text,
    ".parquet": hw.to.parquet,
}


def _file(name: str, other: str = "") -> Callable[[Path], Shared]:
    """Return a pair that appends to a file, the second by another spelling of it if one is given."""
    make = MAKERS[Path(name).suffix]

    def shared(directory: Path) -> Shared:
        path = directory / name
        spelled = (other or "{path}").format(path=path, directory=directory, relative=os.path.relpath(path))
        return Shared((make(path, mode="append"), make(spelled, mode="append")), lambda: read_lines(path))

    return shared


def _linked(directory: Path) -> Shared:
    (directory / "link.csv").symlink_to(directory / "rows.csv")
    return _file("rows.csv", "{directory}/link.csv")(directory)


def _linked_directory(directory: Path) -> Shared:
    (directory / "rows").mkdir()
    (directory / "link").symlink_to(directory / "rows")
    path = directory / "rows" / "parts.parquet"
    sinks = (hw.to.parquet(path, mode="append"), hw.to.parquet(directory / "link/parts.parquet/", mode="append"))
    return Shared(sinks, lambda: read_lines(path))


def _two_kinds(directory: Path) -> Shared:
    path = directory / "rows.txt"
    return Shared((hw.to.text(path, mode="append"), hw.to.csv(path, mode="overwrite")), list)


def _memory(directory: Path) -> Shared:
    sink = hw.to.memory()
    return Shared((sink, sink), lambda: [row["line"] for row in sink.rows()])


TARGETS: Final[dict[str, Callable[[Path], Shared]]] = {
    "one csv file": _file("rows.csv"),
    "one file of JSON lines": _file("rows.json"),
    "one text file": _file("rows.txt"),
    "one Parquet directory": _file("rows.parquet"),
    "a file by a relative path": _file("rows.csv", "{relative}"),
    "a file by a detour": _file("rows.json", "{directory}/../{directory.name}/rows.json"),
    "a file by a symbolic link": _linked,
    "a file by a file:// address": _file("rows.txt", "file://{path}"),
    "a directory by a link and with a slash": _linked_directory,
}


@pytest.mark.parametrize("pair", TARGETS)
def test_of_two_flows_with_one_target_the_second_waits_for_its_turn(node: Node, tmp_path: Path, pair: str) -> None:
    """It is told who has the target; when the first has ended, the second goes on behind its rows. None is lost."""
    two = Two(node, TARGETS[pair](tmp_path))
    two.deploy("first")
    with pytest.raises(ConnectorError, match=f"is used by {HOLDER}; .*stop that one, or give each"):
        two.deploy("second")
    expected = two.drained("first")
    assert two.shared.lines() == expected
    two.deploy("second")
    rows = two.drained("second")
    assert two.shared.lines() == expected + rows


def test_two_names_of_one_file_are_refused_by_the_lock_on_the_file_itself(node: Node, tmp_path: Path) -> None:
    """No lock file can tell that they are links to one file; nor is there one in a directory that is read-only."""
    path, other = tmp_path / "rows.csv", tmp_path / "other.csv"
    path.touch()
    other.hardlink_to(path)
    two = Two(node, Shared((hw.to.csv(path), hw.to.csv(other)), lambda: read_lines(path)))
    two.deploy("first")
    with pytest.raises(ConnectorError, match=r"other\.csv is locked: it is being written under another name, or by"):
        two.deploy("second")
    assert two.drained("first") == read_lines(path)


def test_two_kinds_of_files_at_one_path_are_as_much_one_target(node: Node, tmp_path: Path) -> None:
    two = Two(node, _two_kinds(tmp_path))
    two.deploy("first")
    with pytest.raises(ConnectorError, match=f"rows.txt is used by {HOLDER}"):
        two.deploy("second")
    assert two.drained("first") == read_lines(tmp_path / "rows.txt")


def _consoles(directory: Path) -> Shared:
    screen = io.StringIO()
    sink = hw.to.console(file=screen)
    return Shared((sink, sink), lambda: [line.strip() for line in screen.getvalue().splitlines() if line != "line"])


def _functions(directory: Path) -> Shared:
    seen: list[str] = []
    sink = hw.to.call(lambda batch: seen.extend(batch["line"].to_pylist()))
    return Shared((sink, sink), lambda: seen)


def _neighbours(directory: Path) -> Shared:
    paths = directory / "first.csv", directory / "second.csv"
    return Shared((hw.to.csv(paths[0]), hw.to.csv(paths[1])), lambda: [*read_lines(paths[0]), *read_lines(paths[1])])


def _device(directory: Path) -> Shared:
    """What is written to a device has no offsets, and nothing to overwrite; the rows themselves go elsewhere, too."""
    return Shared((hw.to.text("/dev/null"), hw.to.text("/dev/null")), list)


HARMLESS: Final[dict[str, Callable[[Path], Shared]]] = {
    "one memory sink": _memory,
    "one console": _consoles,
    "one function": _functions,
    "names of sources and sinks": _neighbours,
    "one device": _device,
}


@pytest.mark.parametrize("pair", HARMLESS)
def test_what_can_be_shared_has_the_rows_of_both(node: Node, tmp_path: Path, pair: str) -> None:
    two = Two(node, HARMLESS[pair](tmp_path))
    two.deploy("first")
    two.deploy("second")
    expected = [*two.drained("first"), *two.drained("second")]
    assert sorted(two.shared.lines()) == sorted(expected if pair != "one device" else [])


# --- sources ----------------------------------------------------------------------------------------------------------


def _file_source(read: Callable[..., hw.Stream], text: str, **how: Any) -> Callable[[Path], Callable[[str], hw.Stream]]:
    def made(directory: Path) -> Callable[[str], hw.Stream]:
        path = directory / "input"
        path.write_text(text)
        return lambda flow: read(path, name="lines", **how)

    return made


def _fresh_iterables(directory: Path) -> Callable[[str], hw.Stream]:
    def rows() -> Iterator[dict[str, str]]:
        return ({"line": line} for line in GIVEN)

    return lambda flow: hw.read.iterable(rows, name="lines")


GIVEN: Final = lines_of("given", 500)
SOURCES: Final = {
    "one csv file": _file_source(hw.read.csv, "\n".join(["line", *GIVEN, ""])),
    "one text file": _file_source(hw.read.text, "\n".join([*GIVEN, ""])),
    "one followed file": _file_source(hw.read.text, "\n".join([*GIVEN, ""]), follow=True),
    "one function that makes iterators": _fresh_iterables,
}


@pytest.mark.parametrize("pair", SOURCES)
def test_two_flows_that_read_one_thing_each_have_all_of_it(node: Node, tmp_path: Path, pair: str) -> None:
    """Reading takes nothing away, and each keeps its own position."""
    seen: dict[str, list[str]] = {"first": [], "second": []}

    def into(flow: str) -> SinkSpec:
        return hw.to.call(lambda batch: seen[flow].extend(batch["line"].to_pylist()))

    two = Two(node, Shared((into("first"), into("second")), list, SOURCES[pair](tmp_path)))
    two.deploy("first")
    two.deploy("second")
    eventually(lambda: all(len(lines) == len(GIVEN) for lines in seen.values()), "both have read all")
    two.drained("first")
    two.drained("second")
    assert seen == {"first": GIVEN, "second": GIVEN}


def test_an_iterator_goes_to_one_flow(node: Node) -> None:
    """Of two that read one iterator each would have a part."""
    stop = [False]
    iterator = iter(lambda: None if stop[0] else {"line": "row"}, None)
    sink = hw.to.memory()
    first = node.deploy(hw.flow("first", hw.read.iterable(iterator, name="lines").sink(sink)))
    eventually(sink.rows, "the first has rows")
    with pytest.raises(ConnectorError, match=r"is used by source 'lines' of app 'first' \(pid .*function that returns"):
        node.deploy(hw.flow("second", hw.read.iterable(iterator).sink(hw.to.nothing())))
    stop[0] = True
    assert node.wait(first, PATIENCE_S)
    assert len(sink.rows()) == node.ledger(first).rows_in


# --- clients of a broker ----------------------------------------------------------------------------------------------


def _source(client_id: str, host: str = "127.0.0.1") -> hw.Flow:
    """A flow that reads from a broker; no broker is needed to know that its client id is taken."""
    return hw.flow("reading", hw.read.mqtt(f"mqtt://{host}:1/in", client_id=client_id, name="in").sink(hw.to.nothing()))


def _sink(client_id: str) -> hw.Flow:
    return hw.flow("writing", endless("any").sink(hw.to.mqtt("mqtt://127.0.0.1:1/out", client_id=client_id), name="to"))


CLIENTS: Final[dict[str, tuple[Callable[[], hw.Flow], Callable[[], hw.Flow]]]] = {
    "two sources": (lambda: _source("gate"), lambda: hw.flow("again", _source_stream("gate").sink(hw.to.nothing()))),
    "a source and a sink": (lambda: _source("gate"), lambda: _sink("gate")),
    "a broker by two of its names": (
        lambda: _source("gate", "localhost"),
        lambda: hw.flow("again", _source_stream("gate").sink(hw.to.nothing())),
    ),
}


def _source_stream(client_id: str) -> hw.Stream:
    return hw.read.mqtt("mqtt://127.0.0.1:1/in", client_id=client_id, name="in")


@pytest.mark.parametrize("pair", CLIENTS)
def test_a_client_id_is_used_by_one_flow_and_free_as_soon_as_it_has_stopped(node: Node, pair: str) -> None:
    """A broker would throw them out in turns, for ever."""
    first, second = CLIENTS[pair]
    app = node.deploy(first())
    told = r"client id 'gate' at the broker 127\.0\.0\.1:1 is used by source 'in' of app 'reading' \(pid .*client_id="
    with pytest.raises(ConnectorError, match=told):
        node.deploy(second())
    node.halt(app)
    node.halt(node.deploy(second()))


def test_other_client_ids_and_those_made_by_chance_are_as_many_as_there_are_flows(node: Node) -> None:
    for name, client_id in (("one", None), ("two", None), ("three", "a"), ("four", "b")):
        stream = hw.read.mqtt("mqtt://127.0.0.1:1/in", client_id=client_id)
        node.deploy(hw.flow(name, stream.sink(hw.to.nothing())))
    assert len(node.apps) == 4


def test_a_copied_store_does_not_go_on_with_a_session_that_is_in_use(tmp_path: Path) -> None:
    """The client id was made by chance, and is now in two stores."""
    flow = hw.flow("reading", hw.read.mqtt("mqtt://127.0.0.1:1/in", name="in").sink(hw.to.nothing()))
    config = NodeConfig(store=tmp_path / "store", workers=1, spark=False)
    with Node(config) as node:
        app = node.deploy(flow)
        eventually(lambda: app.sources[0].record.position, "the client id is stored")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with Node(config) as node, Node(NodeConfig(store=tmp_path / "copy", workers=1, spark=False)) as other:
        node.deploy(flow)
        with pytest.raises(ConnectorError, match=r"client id 'headwater[0-9a-f]*' at .* is used by source 'in' of app"):
            other.deploy(flow)


# --- stores, names, ports, logs ---------------------------------------------------------------------------------------


def test_a_store_has_one_node_which_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with Node(NodeConfig(store=tmp_path / "store", workers=1, spark=False)):
        for spelled in ("store", "link", "../" + tmp_path.name + "/store"):
            told = rf"is in use by another node \(pid {os.getpid()} on .*\); stop it or give another directory"
            with pytest.raises(StoreError, match=told):
                Node(NodeConfig(store=tmp_path / spelled, workers=1, spark=False))


def test_two_flows_of_one_name_are_one_app_of_a_node(node: Node, tmp_path: Path) -> None:
    two = Two(node, _neighbours(tmp_path))
    two.deploy("first")
    with pytest.raises(FlowError, match="flow 'first' is already running on this node; stop it first or give it"):
        node.deploy(hw.flow("first", endless("first").sink(hw.to.csv(tmp_path / "elsewhere.csv"), name="out")))
    assert two.drained("first") == read_lines(tmp_path / "first.csv")


def test_a_port_of_metrics_that_is_taken_names_the_process(node: Node) -> None:
    server = serve_metrics(node, 0)
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    try:
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: Address already in use, by pid {os.getpid()} \("):
            serve_metrics(node, port)
    finally:
        server.close()


def test_a_log_file_has_one_process_that_puts_it_aside(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    told = rf"node\.log is written by the log of a process \(pid {os.getpid()} "
    with log_to(LogFormat.TEXT, path), pytest.raises(ConfigError, match=told), log_to(LogFormat.JSON, path):
        pass
    with log_to(LogFormat.JSON, path):
        assert sorted(os.listdir(tmp_path)) == [".node.log.lock", "node.log"]
    assert os.listdir(tmp_path) == ["node.log"]


# --- processes --------------------------------------------------------------------------------------------------------

APPENDING: Final = """
import headwater as hw

def made(first, count):
    return {{"line": [f"{{n}}" for n in range(first, first + count)]}}

rows = hw.read.generator(made, rate={rate}, rows={rows}, name="lines")
flow = hw.flow({name!r}, rows.sink(hw.to.{kind}({out!r}, mode="append"), name="out"))
"""


class Run:
    """`headwater run` in a process of its own."""

    def __init__(
        self,
        directory: Path,
        name: str,
        out: Path,
        *,
        rows: int | None = None,
        rate: int = 2_000,
        store: Path | None = None,
    ) -> None:
        """Begin to append rows to a file."""
        kind = {".txt": "text", ".parquet": "parquet"}[out.suffix]
        path = directory / f"{name}.py"
        path.write_text(APPENDING.format(rows=rows, rate=rate, name=name, kind=kind, out=str(out)))
        words = [sys.executable, "-m", "headwater", "run", str(path), "--no-spark", "--json", "--workers", "1"]
        self.process = subprocess.Popen(
            [*words, *(() if store is None else ("--store", str(store)))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Run":
        """Be killed at the end of the block, if it still runs."""
        return self

    def __exit__(self, *told: object) -> None:
        """Kill it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE_S)

    def ended(self, how: signal.Signals | None = None) -> tuple[int, dict[str, Any], str]:
        """Wait for its end, asking for it if need be; return its exit code, what it told, and its errors."""
        if how is not None:
            self.process.send_signal(how)
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, json.loads(out.splitlines()[-1]) if out else {}, errors


def test_of_two_processes_with_one_target_the_second_is_refused_at_once(tmp_path: Path) -> None:
    """It names the other process, whose rows are exact; once that has ended, no lock file is left."""
    out = tmp_path / "rows.txt"
    with Run(tmp_path, "first", out) as first:
        eventually(lambda: out.exists() and out.stat().st_size, "the first has written rows")
        with Run(tmp_path, "second", out) as second:
            code, _, errors = second.ended()
        holder = rf"is used by sink 'out' of app 'first' \(pid {first.process.pid} on "
        assert (code, bool(re.search(holder, errors.splitlines()[-1]))) == (1, True), errors
        _, told, _ = first.ended(signal.SIGINT)
    assert read_lines(out) == [str(n) for n in range(told["rows_out"])]
    assert [name for name in os.listdir(tmp_path) if "lock" in name] == []


def test_a_killed_process_lets_go_of_its_target_and_its_store(tmp_path: Path) -> None:
    """The next one goes on exactly, whatever lock files the killed one has left."""
    out, store = tmp_path / "rows.parquet", tmp_path / "store"
    part, left = out / FIRST_PART, out / locks.IN_DIRECTORY
    with Run(tmp_path, "counting", out, rows=3_000, rate=100, store=store) as first:
        eventually(part.exists, "the first has written rows")
        with Run(tmp_path, "other", tmp_path / "other.txt", store=store) as other:
            code, _, errors = other.ended()
        holder = f"is in use by another node (pid {first.process.pid} on"
        assert (code, holder in errors) == (1, True), errors
        first.ended(signal.SIGKILL)
    assert left.exists()
    with Run(tmp_path, "counting", out, rows=3_000, store=store) as again:
        code, told, errors = again.ended()
    assert (code, told["ledger"]["balanced"]) == (0, True), errors
    assert read_lines(out) == [str(n) for n in range(3_000)]
    assert not left.exists()


def test_locks_of_names_are_in_a_place_of_the_user_alone() -> None:
    place = locks.file_of_name("any").parent
    assert (place.stat().st_mode & 0o777, place.stat().st_uid) == (0o700, os.getuid())
