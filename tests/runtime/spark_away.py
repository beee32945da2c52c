"""Stories of nodes whose Spark is lost and cannot be started again for a while, each in a process of its own.

The Java is the machine's own behind a script, which refuses to start a Spark for as long as a file is there, and hangs
if something is in the file. What a story has seen it prints as JSON.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

import headwater as hw
from headwater.client.cluster import Cluster
from headwater.model.errors import EngineError, HeadwaterError
from headwater.runtime.node import Node
from headwater.runtime.service.local_cluster import LocalNodes
from headwater.spark.java import find_java
from headwater.workers.config import NodeConfig
from headwater.workers.local.pool import SparkPool
from tests.runtime.flows import by_sensor, expected_sums, running_sums
from tests.runtime.service.few_nodes import Loop

PATIENCE_S: Final = 150.0
ROWS: Final = 3_000

JAVA: Final = """\
#!/bin/sh
case "$*" in
*-XshowSettings*) {java} "$@" 2>&1 | sed "s|java.home = .*|java.home = "{home}"|"; exit 0 ;;
*launcher.Main*) ;;
*SparkSubmit*)
    if [ -s {refusal} ]; then exec sleep 1000; fi
    if [ -e {refusal} ]; then echo "there is no memory for a Java" >&2; exit 3; fi ;;
esac
exec {java} "$@"
"""


def moody_java(directory: Path) -> tuple[Path, Path]:
    """Make a Java that starts no Spark while a file is there; return its home, and the file."""
    real, home, refusal = find_java().home, directory / "java", directory / "refuse"
    (home / "bin").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    script = home / "bin" / "java"
    words = {"java": real / "bin" / "java", "home": home, "refusal": refusal}
    script.write_text(JAVA.format(**{name: shlex.quote(str(path)) for name, path in words.items()}))
    script.chmod(0o755)
    return home, refusal


def told(story: str, directory: Path) -> dict[str, Any]:
    """Run a story in a process of its own, and return what it has seen."""
    home, refusal = moody_java(directory)
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.spark_away", story, str(directory), str(refusal)],
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAVA_HOME": str(home), "TMPDIR": str(directory)},
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4_000:]
    seen: dict[str, Any] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return seen | {"stderr": done.stderr.decode(errors="replace")}


def kill_jvm(node: Node) -> None:
    """Kill the JVM of a node."""
    assert isinstance(node.pool, SparkPool)
    os.kill(node.pool.jvm_pid, signal.SIGKILL)


def jvms_of(pid: int) -> list[int]:
    """The JVM of a process, if there is one: it may run, or be just starting."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split() if _is_jvm(child)]


def _is_jvm(pid: str) -> bool:
    try:
        return b"pyspark-shell" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def until(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Look until something holds, and return what was seen then."""
    never = threading.Event()
    for _ in range(int(PATIENCE_S / 0.1)):
        seen = look()
        if holds(seen):
            return seen
        never.wait(0.1)
    raise AssertionError(f"still {seen}")


def _is_tried(notes: Any) -> bool:
    return any(re.search(r"could not be started again.*tried \d+ times, again", note) for note in notes)


def alone(directory: Path, refusal: Path) -> Mapping[str, Any]:
    """A node by itself: Spark is lost, refused three times, and comes back."""
    sink = hw.to.memory()
    with Node(NodeConfig(store=directory / "store", workers=1)) as node:
        app = node.deploy(running_sums("app", ROWS, sink, rate=600))
        refusal.touch()
        kill_jvm(node)
        away = until(lambda: node.status().notes, _is_tried)
        state = str(app.state)
        refusal.unlink()
        assert node.wait(app, PATIENCE_S)
        exact = by_sensor(sink.rows()) == expected_sums(ROWS) and node.ledger(app).balanced
        return {"away": away, "state": state, "exact": exact, "notes": node.status().notes}


def stopped(directory: Path, refusal: Path) -> Mapping[str, Any]:
    """A node is stopped while it waits before the next try; and another one, while its Spark starts again."""
    with Node(NodeConfig(store=directory / "store", workers=1)) as node:
        refusal.touch()
        kill_jvm(node)
        away = until(lambda: node.status().notes, _is_tried)
    refusal.unlink()
    with Node(NodeConfig(store=directory / "store", workers=1)) as node:
        kill_jvm(node)
        until(lambda: node.status().notes, lambda notes: any("tried once, now" in note for note in notes))
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("spark")]
    return {"away": away, "threads": left}


FLOW: Final = """
import headwater as hw
from tests.runtime.flows import running_sums

app = running_sums("app", {rows}, hw.to.json({out!r}), rate=300)
"""


def several(directory: Path, refusal: Path) -> Mapping[str, Any]:
    """Two nodes that share a Spark: what users are told while it is away, and what comes of their wishes."""
    loop = Loop()
    nodes = LocalNodes(directory / "nodes")
    flow, out = directory / "flow.py", directory / "out.jsonl"
    flow.write_text(FLOW.format(rows=ROWS, out=str(out)))
    try:
        loop.do(nodes.start(["here", "here"]))
        with Cluster(nodes.nodes[0].own.address, insecure=True) as cluster:
            cluster.submit(flow)
            until(lambda: cluster.status("app").state, lambda state: state == "running")
            refusal.touch()
            kill_jvm(nodes.nodes[0].engine)
            lines = until(
                lambda: [node.notes for node in cluster.nodes().nodes], lambda notes: all(map(_is_tried, notes))
            )
            status = cluster.status("app")
            apps = [(app.name, app.state) for app in cluster.apps().apps]
            upgrade = _refused(lambda: cluster.upgraded(cluster.upgrade("app", flow, patience_s=3)))
            waited = _refused(lambda: cluster.wait("app", still_s=1))
            refusal.unlink()
            cluster.wait("app", PATIENCE_S)
            exact = by_sensor([msgspec.json.decode(line) for line in out.read_bytes().splitlines()])
            after = cluster.status("app")
            stopped_app = cluster.stop("app").app
        mistakes = [node.mistakes.count for node in nodes.nodes]
    finally:
        loop.do(nodes.stop())
        loop.close()
    return {
        "nodes": lines,
        "status": [status.state, status.errors],
        "apps": apps,
        "upgrade": upgrade,
        "waited": waited,
        "exact": exact == expected_sums(ROWS) and after.is_balanced,
        "stopped": stopped_app,
        "mistakes": mistakes,
    }


def _refused(wish: Callable[[], object]) -> str:
    try:
        wish()
    except HeadwaterError as failure:
        return str(failure)
    raise EngineError("it was done")


def interrupted(directory: Path, refusal: Path) -> Mapping[str, Any]:
    """`headwater run` is told to stop while it waits for Spark."""
    flow, out = directory / "flow.py", directory / "out.jsonl"
    flow.write_text(FLOW.format(rows=10**9, out=str(out)))
    words = [sys.executable, "-m", "headwater", "run", str(flow), "--workers", "1"]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until(lambda: out.exists() and out.stat().st_size, bool)
    refusal.touch()
    for pid in jvms_of(run.pid):
        os.kill(pid, signal.SIGKILL)
    assert run.stderr is not None
    said = next(line for line in run.stderr if "could not be started again" in line)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=PATIENCE_S)
    return {"code": run.returncode, "said": said}


def starting(directory: Path, refusal: Path) -> Mapping[str, Any]:
    """A run and a node are told to stop while their first Spark hangs as it starts."""
    flow = directory / "flow.py"
    flow.write_text(FLOW.format(rows=10, out=str(directory / "out.jsonl")))
    refusal.write_text("hang")
    node = ["node", "--insecure", "--listen", "127.0.0.1:0", "--data", str(directory / "data")]
    return {"run": _ended_while_starting("run", str(flow)), "node": _ended_while_starting(*node)}


def _ended_while_starting(*words: str) -> list[int]:
    """Return how a command ends that is told to while its JVM starts, and how many of its JVMs are left."""
    command = subprocess.Popen([sys.executable, "-m", "headwater", *words], stdout=sys.stderr)
    pids = until(lambda: jvms_of(command.pid), bool)
    command.send_signal(signal.SIGTERM)
    command.wait(PATIENCE_S)
    return [command.returncode, sum(Path(f"/proc/{pid}").exists() for pid in pids)]


STORIES: Final = {one.__name__: one for one in (alone, stopped, several, interrupted, starting)}

if __name__ == "__main__":
    _, wanted, place, file = sys.argv
    print(msgspec.json.encode(STORIES[wanted](Path(place), Path(file))).decode())
