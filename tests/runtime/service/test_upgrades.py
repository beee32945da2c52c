"""An app is replaced by another version of its flow while it runs on several nodes: every row counts once."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headwater.client.cluster import Cluster
from headwater.client.flow_text import EndsText, FlowText, read_flow
from headwater.client.questions import UpgradeHere
from headwater.client.requests import StatusTold
from headwater.links.requests import RequestRefused
from headwater.model.errors import ConfigError, EngineError
from headwater.runtime.service.engine_shell import HoldReason
from tests.runtime.gates import Gate
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes

COUNTS: Final = """
import headwater as hw
import pyarrow.compute as pc

SENSORS = 7

def made_rows(first, count):
    numbers = range(first, first + count)
    return {{"n": list(numbers), "sensor": [f"s{{n % SENSORS}}" for n in numbers]}}

def count(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    {fault}
    return {{**row, "count": (seen or 0) + 1}}, (seen or 0) + 1

made = hw.read.generator(made_rows, rows={rows}, rate={rate}, name="made")
counted = made{change}.key_by({key!r}).stateful(count, name="counts", parallelism=2)
flow = hw.flow("counting", counted.sink(hw.to.json({out!r}), name="out"))
"""
EVEN_TENFOLD: Final = (
    ".filter(lambda b: pc.equal(pc.bit_wise_and(b['n'], 1), 0), name='even')"
    ".map(lambda b: b.append_column('tenfold', pc.multiply(b['n'], 10)), name='tenfold')"
)
RATE: Final = 1_000
ENDLESS: Final = 10**9

Version = Callable[..., Path]


@pytest.fixture
def version(tmp_path: Path) -> Version:
    """Writes a version of the flow."""

    def write(
        rows: int = ENDLESS, change: str = "", *, key: str = "sensor", fault: str = "", rate: float | None = RATE
    ) -> Path:
        file = tmp_path / "counting.py"
        out = str(tmp_path / "out.json")
        file.write_text(COUNTS.format(rows=rows, rate=rate, change=change, key=key, fault=fault, out=out))
        return file

    return write


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Three nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        for _ in range(3):
            few.add()
        yield few


def running(cluster: Cluster, few: FewNodes, flow: Path, rows: int = 200) -> StatusTold:
    """Submit a flow whose source is on another node than its sink, and wait until rows are through."""
    cluster.submit(flow, at={"made": few.nodes[1].own.address})
    return until(cluster, lambda status: status.rows_out >= rows)


def until(cluster: Cluster, holds: Callable[[StatusTold], bool]) -> StatusTold:
    """Look until something holds."""
    while not holds(status := cluster.status("counting")):
        pass
    return status


def written(tmp_path: Path) -> list[dict[str, Any]]:
    """What the sink has written."""
    return [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]


def check_each_once(rows: list[dict[str, Any]], end: int) -> int:
    """Check that every number is there once and every sensor counts on; return the first number of the new version."""
    turned: int = 1 + max(row["n"] for row in rows if "tenfold" not in row)
    expected = [*range(turned), *(n for n in range(turned, end) if n % 2 == 0)]
    assert sorted(row["n"] for row in rows) == expected
    counts = defaultdict(list)
    for row in rows:
        counts[row["sensor"]].append(row["count"])
    for sensor, seen in counts.items():
        assert seen == list(range(1, len(seen) + 1)), sensor
    return turned


def test_counts_continue_across_an_upgrade_that_adds_a_filter_and_a_column(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """State on its nodes, the source's position, the sink's file: all go on, in the midst of rows."""
    with few.client(2) as cluster:
        before = running(cluster, few, version())
        checked = cluster.upgrade("counting", version(3_000, EVEN_TENFOLD), only_check=True)
        assert (checked.successor, set(checked.kept)) == ("", {"made", "counts", "out"})
        told = cluster.upgrade("counting", version(3_000, EVEN_TENFOLD))
        after = cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
        assert [app.version for app in cluster.apps().apps] == [2]
    assert (before.version, after.version, before.id) == (1, 2, told.id)
    assert status.is_balanced
    turned = check_each_once(written(tmp_path), 3_000)
    assert 200 <= turned < 3_000
    assert status.rows_in == 3_000 - turned
    for node in few.nodes:
        assert told.id not in node.plant.parts
        assert node.engine.registry.find(told.id) is None


def test_whoever_waits_for_a_version_that_another_has_replaced_is_told_so(few: FewNodes, version: Version) -> None:
    """They would wait for ever for one that nobody will see again."""
    with few.client(0) as cluster:
        running(cluster, few, version())
        told = cluster.upgrade("counting", version())
        cluster.upgraded(told)
        cluster.upgraded(cluster.upgrade("counting", version()))
        with pytest.raises(EngineError, match="version 2 of counting is not there any more"):
            cluster.upgraded(told)


def test_another_key_is_refused_and_the_app_goes_on(few: FewNodes, tmp_path: Path, version: Version) -> None:
    with few.client(0) as cluster:
        running(cluster, few, version())
        with pytest.raises(
            RequestRefused, match=r"has its state by key \(sensor\), and would look for it by key \(n\)"
        ):
            cluster.upgrade("counting", version(key="n"))
        with pytest.raises(RequestRefused, match="no app 'other'"):
            cluster.upgrade("other", version())
        renamed = version().with_name("renamed.py")
        renamed.write_text(version().read_text().replace('"counting"', '"renamed"'))
        with pytest.raises(RequestRefused, match="of flow 'renamed', not of 'counting'"):
            cluster.upgrade("counting", renamed)
        status = cluster.status("counting")
        assert (status.state, status.version) == ("running", 1)
        until(cluster, lambda now: now.rows_out > status.rows_out)


def test_a_version_whose_code_cannot_be_sent_to_workers_is_refused_before_anything_is_stopped(
    few: FewNodes, version: Version
) -> None:
    """Else no node could let it go on, and the one before has ended by then."""
    told = "the code of counts cannot be sent to workers .* create files, locks and connections inside the function"
    with few.client(0) as cluster:
        running(cluster, few, version())
        locked = version(fault="lock.locked()")
        locked.write_text("import threading\nlock = threading.Lock()\n" + locked.read_text())
        with pytest.raises(RequestRefused, match=told):
            cluster.upgrade("counting", locked, only_check=True)
        with pytest.raises(RequestRefused, match=told):
            cluster.upgrade("counting", locked)
        status = cluster.status("counting")
        assert (status.state, status.version) == ("running", 1)
        with pytest.raises(RequestRefused, match=told):
            cluster.submit(locked, name="another")
        assert [app.name for app in cluster.apps().apps] == ["counting"]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("phase", ["draining", "adopting"])
def test_whoever_is_restarted_in_the_midst_of_an_upgrade_nothing_is_lost_or_counted_twice(
    few: FewNodes, tmp_path: Path, version: Version, which: int, phase: str
) -> None:
    """The node that leads it, the one that reads, or one that only runs something."""
    with few.client((which + 1) % 3) as cluster:
        cluster.submit(version(), zone="", at={"made": few.nodes[1].own.address})
        until(cluster, lambda status: status.rows_out >= 200)
        told = cluster.upgrade("counting", version(2_000, EVEN_TENFOLD))
        until(cluster, lambda status: _is_in(status, phase, told.successor))
        few.stop(which)
        few.restart(which)
        cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
    assert status.is_balanced
    check_each_once(written(tmp_path), 2_000)


def _is_in(status: StatusTold, phase: str, successor: str) -> bool:
    words = {"draining": "held", "adopting": "bring"}
    return status.id == successor or any(words[phase] in note for note in status.notes)


def test_an_upgrade_whose_rows_do_not_run_out_is_given_up_and_the_app_goes_on(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """A function that does not return holds its rows; nothing has been taken away from it when the time is up."""
    gate = Gate(tmp_path)
    flow = version(1_000, fault=f"if row['n'] == 300: wait_at({gate.path!r})", rate=None)
    flow.write_text("from tests.runtime.gates import wait_at\n" + flow.read_text())
    with few.client(0) as cluster:
        cluster.submit(flow, at={"made": few.nodes[1].own.address})
        until(cluster, lambda status: status.rows_in == 1_000)
        told = cluster.upgrade("counting", version(1_000, EVEN_TENFOLD), patience_s=1)
        with pytest.raises(EngineError, match="rows still waited after 1 s; version 1 goes on"):
            cluster.upgraded(told)
        gate.open()
        assert cluster.wait("counting", PATIENCE_S).version == 1
    check_each_once(written(tmp_path), 1_000)


def test_a_function_that_failed_is_mended_by_an_upgrade_which_takes_the_rows_that_wait(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """They cannot be let through by the version that fails at them; another structure could not take them."""
    with few.client(1) as cluster:
        cluster.submit(
            version(1_000, fault="assert row['n'] != 500, 'five hundred'"), at={"made": few.nodes[0].own.address}
        )
        until(cluster, lambda status: status.state == "failed")
        with pytest.raises(RequestRefused, match="only a version of the same structure"):
            cluster.upgrade("counting", version(1_000, EVEN_TENFOLD))
        told = cluster.upgrade("counting", version(1_000))
        assert told.takes_rows
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.version, status.rows_in, status.is_balanced) == (2, 1_000, True)
    check_each_once(written(tmp_path), 1_000)


def test_whoever_waits_for_a_version_that_fails_is_told_that_and_why(few: FewNodes, version: Version) -> None:
    """It has taken the place of the one before all the same, so what helps is another one."""
    with few.client(2) as cluster:
        running(cluster, few, version())
        told = cluster.upgrade("counting", version(fault="raise ValueError('no such gauge')"))
        until(cluster, lambda status: (status.id, status.state) == (told.successor, "failed"))
        failed = "version 2 of counting has failed, mend it and upgrade again: .*ValueError: no such gauge"
        with pytest.raises(EngineError, match=failed):
            cluster.upgraded(told)


def test_a_version_that_cannot_be_built_any_more_gives_way_as_it_runs(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """What its file reads may be gone by now; that is no reason to keep it."""
    (tmp_path / "settings").write_text("any")
    flow = version()
    flow.write_text(f"open({str(tmp_path / 'settings')!r}).close()\n{flow.read_text()}")
    with few.client(1) as cluster:
        running(cluster, few, flow)
        (tmp_path / "settings").unlink()
        cluster.upgraded(cluster.upgrade("counting", version(2_000, EVEN_TENFOLD)))
        assert cluster.wait("counting", PATIENCE_S).is_balanced
    check_each_once(written(tmp_path), 2_000)


def test_an_app_that_cannot_start_again_is_mended_by_an_upgrade_with_what_it_had(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """A node was restarted, and cannot build the flow any more: the next version is one that it can."""
    (tmp_path / "settings").write_text("any")
    flow = version()
    flow.write_text(f"open({str(tmp_path / 'settings')!r}).close()\n{flow.read_text()}")
    with few.client(1) as cluster:
        cluster.submit(flow, at={"made": few.nodes[2].own.address})
        until(cluster, lambda status: status.rows_out >= 200)
        (tmp_path / "settings").unlink()
        few.stop(2)
        few.restart(2)
        until(cluster, lambda status: status.state == "troubled")
        told = cluster.upgrade("counting", version(3_000))
        assert told.takes_rows
        cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.rows_in, status.is_balanced) == (3_000, True)
    check_each_once(written(tmp_path), 3_000)


def test_an_app_that_is_being_stopped_is_not_upgraded_and_stays_away(few: FewNodes, version: Version) -> None:
    """Whoever stops it is told that it has ended: no next version may begin behind their back, with nothing.

    That holds from the first moment: the nodes that have something of it are asked first, of which some may be silent.
    """
    with few.client(2) as cluster:
        running(cluster, few, version())
        [(owner, owned)] = [(node, one) for node in few.nodes for one in node.keeping.owned.values()]
        wanted = UpgradeHere("counting", owned.spec.flow, (), {}, 10.0, only_check=False)

        async def is_ending() -> bool:
            return owned.is_ending

        async def at_once() -> tuple[Any, ...]:
            stops, begins = owner.ownership.end("counting", ""), owner.upgrades.begin(wanted)
            return await asyncio.gather(stops, is_ending(), begins, return_exceptions=True)

        stopped, was_ending, refused = few.do(at_once())
        assert (stopped, was_ending) == (None, True)
        assert "being ended or upgraded already" in str(refused)
        assert cluster.apps().apps == []


# --- what an application was told -------------------------------------------------------------------------------------


def told_to(few: FewNodes, name: str) -> FlowText:
    """Return the flow that an app runs, with what it was told."""
    [(node, owned)] = [(node, one) for node in few.nodes for one in node.keeping.owned.values() if one.name == name]
    return read_flow(node.trust.kept(owned.spec.flow).flow)


def test_what_an_application_was_told_and_is_not_said_anew_stays(few: FewNodes, tmp_path: Path) -> None:
    sink = str(tmp_path / "words.json")
    submitted = EndsText(rate=500.0, rows=ENDLESS, sink=sink)
    with few.client(0) as cluster:
        cluster.submit("storm.word_count", ends=submitted, settings=["seed=3"], name="words")
    with few.client(1) as cluster:
        checked = cluster.upgrade("words", "storm.word_count", only_check=True)
        assert checked.options == ("--rate 500", f"--rows {ENDLESS}", f"--sink {sink}", "--set seed=3")
        cluster.upgraded(cluster.upgrade("words", "storm.word_count"))
        assert (told_to(few, "words").ends, told_to(few, "words").settings) == (submitted, ("seed=3",))
        faster = cluster.upgrade("words", "storm.word_count", ends=EndsText(rate=900.0))
        assert faster.options == ("--rows 1000000000", f"--sink {sink}", "--set seed=3")
        cluster.upgraded(faster)
    assert told_to(few, "words").ends == EndsText(rate=900.0, rows=ENDLESS, sink=sink)


def test_what_is_kept_and_contradicts_what_is_said_is_refused_and_can_be_left_out(few: FewNodes) -> None:
    """Nobody said --rows now: the refusal says where it is from."""
    with few.client(2) as cluster:
        cluster.submit("storm.word_count", ends=EndsText(rows=ENDLESS, rate=500.0), name="words")
        elsewhere = EndsText(source="words.txt")
        with pytest.raises(ConfigError, match=re.escape("--rows is not for --source: it gives what it has; words was")):
            cluster.upgrade("words", "storm.word_count", ends=elsewhere)
        given_up = ["input"]
        checked = cluster.upgrade(
            "words", "storm.word_count", ends=elsewhere, given_up=given_up, keep_options=False, only_check=True
        )
        assert checked.options == ()


def test_a_node_that_runs_nothing_of_the_next_version_can_leave(few: FewNodes, version: Version) -> None:
    """What it kept of the version before goes on elsewhere; it need not wait for the app to be stopped."""
    with few.client(0) as cluster:
        running(cluster, few, version(1_000))
        cluster.wait("counting", PATIENCE_S)
        (part,) = few.nodes[1].plant.parts.values()
        few.nodes[1].plant.hold(part, HoldReason.ADOPTED)
        few.do(few.nodes[1].leftovers.look())
        assert part.kept.hold is HoldReason.NONE
