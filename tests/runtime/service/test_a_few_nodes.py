"""Real nodes over real sockets: flows run across them as on one, and whatever happens, every row is there once."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import headwater as hw
from headwater.client.cluster import Cluster
from headwater.client.connection import NodeLost
from headwater.client.flow_text import EndsText, flow_texts
from headwater.client.questions import SubmitHere
from headwater.client.requests import LogLine
from headwater.client.signing import signed
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.explained import explained
from headwater.links.credentials import insecure_user
from headwater.links.requests import RequestRefused
from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows
from headwater.model.errors import ConfigError, EngineError, FlowError, HeadwaterError
from headwater.runtime.service.recent_log import remember_log
from headwater.security.identity import Role
from tests.links.wires import Cluster as Authority
from tests.runtime.flows import by_sensor, expected_sums
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes
from tests.runtime.service.sums import rows_of, write_sums

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file with a flow, whose functions are in a module beside it."""

    def write(name: str, out: Path, rows: int, rate: float | None = None) -> Path:
        return write_sums(tmp_path, name, out, rows, rate)

    return write


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        yield few


def test_a_flow_over_three_nodes_gives_what_plain_python_gives(few: FewNodes, tmp_path: Path, write: Write) -> None:
    """Source on one node, sink on another, keyed state wherever there is room: every row once, in order per key."""
    out = tmp_path / "out.json"
    for _ in range(3):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write("sums", out, 5_000), at={"made": few.nodes[1].own.address})
        status = cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(5_000)
    assert status.is_balanced
    assert (status.rows_in, status.waiting) == (5_000, 0)
    reading = [part.node for part in status.parts if part.sources]
    writing = [part.node for part in status.parts if part.sinks]
    assert (reading, writing) == ([few.nodes[1].own.address], [few.nodes[0].own.address])


LARGE: Final = """
import headwater as hw

def make(first, count):
    numbers = range(first, first + count)
    return {{"n": list(numbers), "text": [f"{{n:08d}}" * 100_000 for n in numbers]}}

flow = hw.flow("large", hw.read.generator(make, rows=24, name="large").sink(hw.to.json({out!r})))
"""


def test_a_batch_that_is_larger_than_any_message_arrives(few: FewNodes, tmp_path: Path) -> None:
    """Rows of 800 KB, 19 MB in all, are made at once on one node and written on another."""
    out, file = tmp_path / "out.json", tmp_path / "large.py"
    file.write_text(LARGE.format(out=str(out)))
    for _ in range(3):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(file, at={"large": few.nodes[1].own.address})
        status = cluster.wait("large", PATIENCE_S)
    assert [(row["n"], row["text"] == f"{row['n']:08d}" * 100_000) for row in rows_of(out)] == [
        (n, True) for n in range(24)
    ]
    assert (status.is_balanced, status.rows_in, status.waiting) == (True, 24, 0)


def test_any_node_answers_for_all(few: FewNodes, tmp_path: Path, write: Write) -> None:
    """Submitted through one node, seen through another, stopped through a third; then nothing is left anywhere."""
    for _ in range(3):
        few.add()
    with few.client(0) as first, few.client(1) as second, few.client(2) as third:
        first.submit(write("sums", tmp_path / "out.json", 10**9, rate=500), at={"made": few.nodes[2].own.address})
        assert [app.name for app in second.apps().apps] == ["sums"]
        with pytest.raises(RequestRefused, match="already"):
            second.submit(write("sums", tmp_path / "other.json", 10))
        while second.status("sums").rows_out == 0:
            pass
        assert third.stop("sums").app == "sums"
        assert first.apps().apps == []
        with pytest.raises(RequestRefused, match="no app 'sums'"):
            first.status("sums")
    for node in few.nodes:
        assert node.plant.parts == {}
        with node.engine.store.read() as snapshot:
            assert [key for key, _ in snapshot.scan(b"") if key[:1] not in (b"!", b"D")] == []


def test_any_node_explains_an_app_as_whoever_wrote_it_would_at_home(
    few: FewNodes, tmp_path: Path, write: Write
) -> None:
    """Before and after anything of it runs at its owner."""
    for _ in range(3):
        few.add()
    file = write("sums", tmp_path / "out.json", 10**9, rate=500)
    at_home = msgspec.structs.asdict(explained(compile_flow(load_flows(str(file))[0])))
    with few.client(0) as first, few.client(2) as third:
        [app] = first.submit(file, at={"made": few.nodes[2].own.address})
        for _ in range(2):
            told = msgspec.structs.asdict(third.explain("sums"))
            assert told == at_home | {"app": "sums", "id": app.id, "version": 1, "owner": app.owner}
            while third.status("sums").rows_out == 0:
                pass
        with pytest.raises(RequestRefused, match="no app 'other'"):
            third.explain("other")


def test_a_file_of_several_flows_is_submitted_whole_or_not_at_all(few: FewNodes, tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "import headwater as hw\n"
        "rows = hw.read.iterable([{'n': 1}])\n"
        "one = hw.flow('one', rows.sink(hw.to.nothing()))\n"
        "two = hw.flow('two', rows.sink(hw.to.nothing()))\n"
    )
    few.add()
    with few.client(0) as cluster:
        cluster.submit(f"{file}:two")
        with pytest.raises(ConfigError, match=r"two of .* are apps already, so nothing is submitted"):
            cluster.submit(file)
        assert [app.name for app in cluster.apps().apps] == ["two"]
        cluster.stop("two")
        assert {one.app for one in cluster.submit(file)} == {"one", "two"}


LEFT_AND_RIGHT: Final = """
import headwater as hw
first = hw.flow("one", hw.read.iterable([{"n": 1}], name="left").sink(hw.to.nothing()))
second = hw.flow("two", hw.read.iterable([{"n": 2}], name="right").sink(hw.to.nothing()))
"""


def test_each_flow_of_a_file_is_told_where_its_own_sources_are(few: FewNodes, tmp_path: Path) -> None:
    """A name that none of them has is refused before any is submitted."""
    file = tmp_path / "both.py"
    file.write_text(LEFT_AND_RIGHT)
    few.add()
    other = few.add().own.address
    with few.client(0) as cluster:
        with pytest.raises(ConfigError, match=r"no flow has a source 'up', so nothing .*: one has left; two has right"):
            cluster.submit(file, at={"left": other, "up": other})
        assert cluster.apps().apps == []
        cluster.submit(file, at={"right": other})
        cluster.wait("two", PATIENCE_S)
        read = {
            source.name: part.node
            for app in ("one", "two")
            for part in cluster.status(app).parts
            for source in part.sources
        }
    assert read == {"left": few.nodes[0].own.address, "right": other}


def test_if_a_later_flow_of_a_file_is_refused_it_is_told_which_are_there_and_how_to_go_on(
    few: FewNodes, tmp_path: Path
) -> None:
    file = tmp_path / "both.py"
    file.write_text(LEFT_AND_RIGHT)
    few.add()
    with few.client(0) as cluster:
        with pytest.raises(
            EngineError, match=r"'10\.9\.9\.9:1' is not known .*; submitted already.*: one; .*both\.py:two"
        ):
            cluster.submit(file, at={"right": "10.9.9.9:1"})
        assert [app.name for app in cluster.apps().apps] == ["one"]
        assert [one.app for one in cluster.submit(f"{file}:two")] == ["two"]  # as the error says


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_node_that_is_restarted_in_mid_run_loses_and_doubles_nothing(
    few: FewNodes, tmp_path: Path, write: Write, which: int
) -> None:
    """The node with the sink, the one with the source, or one in between: it goes on where it stood."""
    out = tmp_path / "out.json"
    for _ in range(3):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write("sums", out, 8_000, rate=1_500), at={"made": few.nodes[1].own.address})
        while cluster.status("sums").rows_out < 1_000:
            pass
    few.stop(which)
    few.restart(which)
    with few.client((which + 1) % 3) as cluster:
        status = cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(8_000)
    assert status.is_balanced


def test_a_node_that_was_away_when_an_app_ended_deletes_what_it_has_of_it(
    few: FewNodes, tmp_path: Path, write: Write
) -> None:
    """Its rows have nowhere to go any more; it asks around, and nobody has the app."""
    for _ in range(3):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write("sums", tmp_path / "out.json", 10**9, rate=500), at={"made": few.nodes[1].own.address})
        while cluster.status("sums").rows_out == 0:
            pass
        few.stop(1)
        cluster.stop("sums")
    few.restart(1)
    assert list(few.nodes[1].plant.parts) != []
    few.wait_until(lambda: few.nodes[1].plant.parts == {})


def test_a_node_that_leaves_for_good_in_mid_run_loses_and_doubles_nothing(
    few: FewNodes, tmp_path: Path, write: Write
) -> None:
    """What it ran goes on elsewhere with all it had counted, and what it has done stays in the ledger."""
    out = tmp_path / "out.json"
    for _ in range(4):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write("sums", out, 8_000, rate=1_500))
        while cluster.status("sums").rows_out < 1_000:
            pass
        leaving = next(node for node in few.nodes[1:] if node.machine.hosting.hosted)
        told = cluster.drain(leaving.own.address)
        assert told.left
        few.wait_until(leaving.draining.done.is_set)
        assert leaving.plant.parts == {}
        status = cluster.wait("sums", PATIENCE_S)
        assert leaving.own.address not in [node.address for node in cluster.nodes().nodes]
    assert by_sensor(rows_of(out)) == expected_sums(8_000)
    assert status.is_balanced
    assert status.rows_in == 8_000


def test_a_node_that_is_killed_while_it_leaves_goes_on_leaving(few: FewNodes, tmp_path: Path, write: Write) -> None:
    """It remembers what it was told; others fetch from it what it had, as soon as it is back."""
    out = tmp_path / "out.json"
    for _ in range(4):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write("sums", out, 8_000, rate=1_500))
        while cluster.status("sums").rows_out < 1_000:
            pass
        which = next(number for number in (1, 2, 3) if few.nodes[number].machine.hosting.hosted)
        cluster.drain(few.nodes[which].own.address)
        few.stop(which)
        few.restart(which)
        few.wait_until(few.nodes[which].draining.done.is_set)
        status = cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(8_000)
    assert status.is_balanced


def test_a_node_that_has_left_does_not_begin_to_leave_again_when_it_is_back(few: FewNodes) -> None:
    """Whoever waits for it to go may ask it once more when it is gone."""
    few.add()
    few.add()
    with few.client(0) as cluster:
        cluster.drain(few.nodes[1].own.address)
    few.wait_until(few.nodes[1].draining.done.is_set)
    few.do(few.nodes[1].draining.begin())
    few.stop(1)
    few.restart(1)
    assert not few.nodes[1].keeping.is_draining


def test_a_node_that_is_started_in_order_to_leave_joins_before_it_leaves(few: FewNodes) -> None:
    """Outside the ring it knows nobody whom it could ask what they need, and nobody would hear that it leaves."""
    few.add()
    few.add()
    few.nodes[1].keeping.drain(True)
    few.stop(1)
    few.restart(1)
    few.wait_until(few.nodes[1].draining.done.is_set)
    with few.client(0) as cluster:
        assert [node.address for node in cluster.nodes().nodes] == [few.nodes[0].own.address]


def test_a_node_that_was_to_leave_stays_after_all_and_loses_nothing(
    few: FewNodes, tmp_path: Path, write: Write
) -> None:
    """Some of what it ran may have moved meanwhile, and goes on there."""
    out = tmp_path / "out.json"
    for _ in range(4):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write("sums", out, 8_000, rate=1_500))
        while cluster.status("sums").rows_out < 1_000:
            pass
        which = next(number for number in (1, 2, 3) if few.nodes[number].machine.hosting.hosted)
        address = few.nodes[which].own.address
        assert cluster.drain(address).is_leaving
        assert not cluster.drain(address, cancel=True).is_leaving
        assert not cluster.leaving(address).is_leaving
        assert few.nodes[which].machine.hosting.capacity > 0
        few.stop(which)
        few.restart(which)
        status = cluster.wait("sums", PATIENCE_S)
        assert address in [node.address for node in cluster.nodes().nodes if not node.is_draining]
    assert by_sensor(rows_of(out)) == expected_sums(8_000)
    assert (status.is_balanced, status.rows_in) == (True, 8_000)


def test_a_node_that_is_to_leave_and_has_a_source_says_so_until_it_may_stay(
    few: FewNodes, tmp_path: Path, write: Write
) -> None:
    """A source may be placed at a node in the moment in which that is told to leave."""
    out = tmp_path / "out.json"
    few.add()
    few.add()
    address = few.nodes[1].own.address
    with few.client(0) as cluster:
        cluster.submit(write("sums", out, 6_000, rate=1_500), at={"made": address})
        while cluster.status("sums").rows_out < 1_000:
            pass
        few.nodes[1].keeping.drain(True)
        few.stop(1)
        few.restart(1)
        while not cluster.leaving(address).waits_for.startswith("sources of sums are read there: stop these apps"):
            pass
        assert not cluster.drain(address, cancel=True).waits_for
        cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(6_000)


def test_a_node_of_which_nothing_is_left_cannot_stay(few: FewNodes) -> None:
    few.add()
    few.add()
    with few.client(0) as cluster:
        cluster.drain(few.nodes[1].own.address)
    few.wait_until(few.nodes[1].draining.done.is_set)
    with pytest.raises(HeadwaterError, match="it ends: start it again, and it is a new node"):
        few.nodes[1].draining.stay()


def test_a_node_that_others_need_says_why_it_cannot_leave(few: FewNodes, tmp_path: Path, write: Write) -> None:
    """An app's owner has its sinks, and a source is where its devices are."""
    for _ in range(2):
        few.add()
    addresses = [node.own.address for node in few.nodes]
    with few.client(0) as cluster:
        cluster.submit(write("sums", tmp_path / "out.json", 10**9, rate=500), at={"made": addresses[1]})
        while cluster.status("sums").rows_out == 0:
            pass
        with pytest.raises(RequestRefused, match="sums were submitted to"):
            cluster.drain(addresses[0])
        with pytest.raises(RequestRefused, match="sources of sums"):
            cluster.drain(addresses[1])
        with pytest.raises(RequestRefused, match="not known"):
            cluster.drain("127.0.0.1:1")
        assert not any(node.is_draining for node in cluster.nodes().nodes)


SLOW_TO_BUILD: Final = """
from pathlib import Path

import headwater as hw

if Path({gate!r}).exists():
    Path({gate!r}).read_bytes()

def make(first, count):
    return {{"n": [first] * count}}

flow = hw.flow("slow", hw.read.generator(make, rows=1, name="n").sink(hw.to.console()))
"""


def test_a_node_that_is_becoming_an_owner_does_not_leave(few: FewNodes, tmp_path: Path) -> None:
    """It is asked to leave while it builds the flow: the app would be lost with it."""
    for _ in range(2):
        few.add()
    node, gate, file = few.nodes[1], tmp_path / "gate", tmp_path / "slow.py"
    file.write_text(SLOW_TO_BUILD.format(gate=str(gate)))
    [text] = flow_texts(str(file))
    os.mkfifo(gate)
    wanted = SubmitHere(signed(text.encode(), insecure_user("ann"), 0), "ann", {})
    submitting = few.begin(node.ownership.take(wanted))
    few.wait_until(lambda: node.ownership.has_name("slow"))
    try:
        with pytest.raises(HeadwaterError, match="slow were submitted to"):
            few.do(node.draining.begin())
        assert not node.keeping.is_draining
    finally:
        with gate.open("wb"):  # as soon as the flow reads it
            gate.unlink()
    assert submitting.result(PATIENCE_S).app == "slow"


def test_a_node_that_is_to_leave_and_owns_an_app_says_so_until_it_may_stay(
    few: FewNodes, tmp_path: Path, write: Write
) -> None:
    """Else it would delete what only it knows."""
    out = tmp_path / "out.json"
    few.add()
    few.add()
    address = few.nodes[1].own.address
    with few.client(1) as cluster:
        cluster.submit(write("sums", out, 6_000, rate=1_500), at={"made": few.nodes[0].own.address})
        while cluster.status("sums").rows_out < 1_000:
            pass
    few.nodes[1].keeping.drain(True)
    few.stop(1)
    few.restart(1)
    with few.client(0) as cluster:
        while not cluster.leaving(address).waits_for.startswith("sums were submitted there: stop these apps"):
            pass
        assert not cluster.drain(address, cancel=True).waits_for
        cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(6_000)


def test_a_node_that_has_left_takes_no_app(few: FewNodes, tmp_path: Path, write: Write) -> None:
    few.add()
    few.add()
    with few.client(0) as cluster:
        cluster.drain(few.nodes[1].own.address)
    few.wait_until(few.nodes[1].draining.done.is_set)
    [text] = flow_texts(str(write("sums", tmp_path / "out.json", 10)))
    wanted = SubmitHere(signed(text.encode(), insecure_user("ann"), 0), "ann", {})
    with pytest.raises(RequestRefused, match="is to leave for good"):
        few.do(few.nodes[1].ownership.take(wanted))


def test_a_shipped_application_runs_by_its_name(few: FewNodes, tmp_path: Path) -> None:
    """Only its name and options travel; what comes out is what one node by itself makes."""
    few.add()
    few.add()
    ends = EndsText(rows=2_000, sink=str(tmp_path / "cluster.json"))
    with few.client(1) as cluster:
        submitted = cluster.submit("storm.word_count", ends=ends)
        status = cluster.wait(submitted[0].app, PATIENCE_S)
    assert [part.node for part in status.parts if part.sinks] == [few.nodes[1].own.address]
    hw.run(_alone("storm.word_count", rows=2_000, sink=str(tmp_path / "alone.json")), spark=False)
    together, alone = (sorted(map(str, rows_of(tmp_path / name))) for name in ("cluster.json", "alone.json"))
    assert together == alone


def test_an_application_runs_twice_under_two_names(few: FewNodes, tmp_path: Path) -> None:
    """The flow is the same, the apps are two: each has its own rows, and is stopped by its own name."""
    few.add()
    with few.client(0) as cluster:
        for name in ("first", "second"):
            ends = EndsText(rows=200, sink=str(tmp_path / f"{name}.json"))
            cluster.submit("storm.word_count", ends=ends, name=name)
        with pytest.raises(RequestRefused, match="an app 'first' already"):
            cluster.submit("storm.exclamation", name="first")
        with pytest.raises(FlowError, match="cannot be a flow name"):
            cluster.submit("storm.exclamation", name="no name")
        assert [cluster.wait(name, PATIENCE_S).name for name in ("first", "second")] == ["first", "second"]
        cluster.stop("first")
        assert [app.name for app in cluster.apps().apps] == ["second"]
    assert rows_of(tmp_path / "first.json") == rows_of(tmp_path / "second.json") != []


def _alone(name: str, **ends: Any) -> hw.Flow:
    return load_flows(name, Ends(**ends))[0]


# --- who may what -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of a cluster."""
    return Authority(tmp_path_factory.mktemp("authority"))


def test_with_certificates_strangers_are_refused_and_users_do_what_their_role_says(
    authority: Authority, tmp_path: Path, write: Write
) -> None:
    """Who only sees cannot submit; who submits ends their own apps and no others; a stranger is told nothing."""
    out = tmp_path / "out.json"
    flow = write("sums", out, 2_000)
    with FewNodes(tmp_path / "nodes", authority.node) as few:
        few.add()
        few.add()
        address = few.nodes[1].own.address
        seer, mine, other = (authority.user(role, name) for role, name in _USERS)
        with Cluster(address, certs=seer) as cluster, pytest.raises(RequestRefused, match="submit"):
            cluster.submit(flow)
        with Cluster(address, certs=mine) as cluster:
            cluster.submit(flow, at={"made": few.nodes[0].own.address})
            cluster.wait("sums", PATIENCE_S)
        with Cluster(address, certs=seer) as cluster:
            assert cluster.explain("sums").app == "sums"
        with Cluster(address, certs=other) as cluster, pytest.raises(RequestRefused, match="operate"):
            cluster.stop("sums")
        with pytest.raises(HeadwaterError):
            Cluster(address, insecure=True).apps()
        stranger = Authority(tmp_path / "elsewhere").user(Role.OPERATE, "stranger")
        with pytest.raises(NodeLost):
            Cluster(address, certs=stranger).apps()
        with Cluster(address, certs=mine) as cluster:
            cluster.stop("sums")
    assert by_sensor(rows_of(out)) == expected_sums(2_000)


_USERS: Final = ((Role.SEE, "anna"), (Role.SUBMIT, "bert"), (Role.SUBMIT, "cleo"))


BROKEN: Final = """
import headwater as hw

def make(first, count):
    if first > 0:
        raise RuntimeError("the sensor is gone")
    return {"n": list(range(count))}

flow = hw.flow("broken", hw.read.generator(make, rate=500, name="made").sink(hw.to.nothing()))
"""


def test_the_source_of_an_app_that_has_failed_is_stopped_and_only_one_without_more_rows_has_ended(
    few: FewNodes, tmp_path: Path
) -> None:
    broken, both = tmp_path / "broken.py", tmp_path / "both.py"
    broken.write_text(BROKEN)
    both.write_text(LEFT_AND_RIGHT)
    few.add()
    with few.client(0) as cluster:
        cluster.submit(broken)
        cluster.submit(f"{both}:one")
        while (failed := cluster.status("broken")).state != "failed":
            pass
        finished = cluster.wait("one", PATIENCE_S)
    states = [source.state for status in (failed, finished) for part in status.parts for source in part.sources]
    assert states == ["stopped", "ended"]


def test_each_line_of_a_log_is_of_the_node_that_said_it(few: FewNodes, tmp_path: Path) -> None:
    """Nodes of one process: what their loops say, and what their threads say, of which a source's is one."""
    remember_log()
    for _ in range(3):
        few.add()
    addresses = [node.own.address for node in few.nodes]
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    with few.client(0) as cluster:
        cluster.submit(tmp_path / "broken.py", at={"made": addresses[2]})
        lines: list[LogLine] = []
        while not (failed := {line.node for line in lines if "failed at source 'made'" in line.text}):
            lines = cluster.logs(200).lines
    entered = [line for line in lines if "in the ring as" in line.text]
    assert all(line.node in line.text for line in entered)
    assert [line.node for line in entered] == addresses
    assert failed == {addresses[2]}
