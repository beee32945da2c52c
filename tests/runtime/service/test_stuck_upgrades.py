"""An app that cannot go on is mended by another version of its flow, which takes the rows that wait for it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from headwater.client.cluster import Cluster
from headwater.client.requests import StatusTold
from headwater.links.requests import RequestRefused
from headwater.model.errors import EngineError
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes, free_port

ROWS: Final = 1_000
COUNTS: Final = """
import headwater as hw

def made_rows(first, count):
    numbers = range(first, first + count)
    return {{"n": list(numbers), "sensor": [f"s{{n % 7}}" for n in numbers]}}

def count(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    return {{**row, "count": (seen or 0) + 1}}, (seen or 0) + 1

made = hw.read.generator(made_rows, rows={rows}, rate={rate}, name="made")
counted = made{change}.key_by("sensor").stateful(count, name="counts", parallelism=2)
flow = hw.flow("counting", counted.sink({sink}, name="out"))
"""
ALL: Final = ".map(lambda batch: batch, name='all')"

Version = Callable[..., Path]


@pytest.fixture
def version(tmp_path: Path) -> Version:
    """Writes a version of the flow."""

    def write(sink: str, change: str = "", rows: int = ROWS, rate: float | None = None) -> Path:
        file = tmp_path / "counting.py"
        file.write_text(COUNTS.format(rows=rows, rate=rate, change=change, sink=sink))
        return file

    return write


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Three nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        for _ in range(3):
            few.add()
        yield few


def json_to(path: Path) -> str:
    """A sink that writes lines."""
    return f"hw.to.json({str(path)!r})"


def waiting_for_a_sink(cluster: Cluster, few: FewNodes, flow: Path) -> StatusTold:
    """Submit a flow whose sink cannot be opened, and wait until all its rows wait for that."""
    cluster.submit(flow, at={"made": few.nodes[1].own.address})
    return until(cluster, lambda status: status.state == "troubled" and status.rows_in == ROWS)


def until(cluster: Cluster, holds: Callable[[StatusTold], bool]) -> StatusTold:
    """Look until something holds."""
    while not holds(status := cluster.status("counting")):
        pass
    return status


def check_each_once(*files: Path) -> None:
    """Check that every row is there once, and every sensor counts on."""
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(row["n"] for row in rows) == list(range(ROWS))
    for sensor in range(7):
        counts = [row["count"] for row in rows if row["sensor"] == f"s{sensor}"]
        assert counts == list(range(1, len(counts) + 1))


def test_rows_that_wait_for_a_sink_which_cannot_be_opened_go_to_that_of_the_next_version(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """They can never be let through by the version that they came for."""
    out = tmp_path / "out.json"
    with few.client(2) as cluster:
        waiting_for_a_sink(cluster, few, version(json_to(tmp_path / "absent" / "out.json")))
        told = cluster.upgrade("counting", version(json_to(out)), given_up=["out"])
        assert told.takes_rows
        cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.version, status.rows_in, status.rows_out, status.is_balanced) == (2, ROWS, ROWS, True)
    check_each_once(out)


def test_the_sink_that_takes_over_may_be_of_another_kind(few: FewNodes, tmp_path: Path, version: Version) -> None:
    """A broker that nobody reaches gives way to a file."""
    out = tmp_path / "out.json"
    with few.client(0) as cluster:
        waiting_for_a_sink(cluster, few, version(f"hw.to.csv({str(tmp_path / 'absent' / 'out.csv')!r})"))
        told = cluster.upgrade("counting", version(json_to(out)), given_up=["out"])
        cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.rows_in, status.rows_out, status.is_balanced) == (ROWS, ROWS, True)
    check_each_once(out)


def test_rows_that_wait_for_a_broker_which_is_not_there_go_to_the_sink_of_the_next_version(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """That sink has been opened, and waits for as long as it takes."""
    out = tmp_path / "out.json"
    away = f"hw.to.mqtt('mqtt://127.0.0.1:{free_port()}', topic='counts')"
    with few.client(1) as cluster:
        cluster.submit(version(away), at={"made": few.nodes[1].own.address})
        until(cluster, lambda status: status.rows_in == ROWS)
        told = cluster.upgrade("counting", version(json_to(out)), given_up=["out"])
        cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.version, status.rows_in, status.rows_out, status.is_balanced) == (2, ROWS, ROWS, True)
    check_each_once(out)


def test_a_sink_that_failed_is_mended_by_an_upgrade_which_takes_the_rows_that_wait(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    out = tmp_path / "out.json"
    with few.client(2) as cluster:
        cluster.submit(version("hw.to.json('/dev/full')"), at={"made": few.nodes[1].own.address})
        until(cluster, lambda status: status.state == "failed")
        told = cluster.upgrade("counting", version(json_to(out)), given_up=["out"])
        assert told.takes_rows
        cluster.upgraded(told)
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.version, status.rows_in, status.rows_out, status.is_balanced) == (2, ROWS, ROWS, True)
    check_each_once(out)


def test_another_structure_is_given_up_on_with_what_keeps_the_rows_from_running_out(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """It cannot take them, and so says what it waited for; mended as it is, the app then delivers them."""
    out = tmp_path / "out.json"
    with few.client(0) as cluster:
        waiting_for_a_sink(cluster, few, version(json_to(tmp_path / "absent" / "out.json")))
        told = cluster.upgrade("counting", version(json_to(out), ALL), given_up=["out"], patience_s=1)
        assert not told.takes_rows
        with pytest.raises(
            EngineError, match=r"1,000 rows still waited after 1 s .*sink 'out' cannot be opened: .*absent"
        ):
            cluster.upgraded(told)
        cluster.upgraded(cluster.upgrade("counting", version(json_to(out)), given_up=["out"]))
        status = cluster.wait("counting", PATIENCE_S)
    assert (status.rows_in, status.rows_out, status.is_balanced) == (ROWS, ROWS, True)
    check_each_once(out)


def test_a_sink_that_has_written_and_is_changed_has_to_be_given_up_knowingly(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """What it has is in one place, what it gets from now on in the other: nothing twice, nothing in neither."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    with few.client(1) as cluster:
        cluster.submit(version(json_to(first), rate=2_000), at={"made": few.nodes[2].own.address})
        until(cluster, lambda status: status.rows_out > 100)
        with pytest.raises(RequestRefused, match=r"json 'out' has its position with path=.*--discard out"):
            cluster.upgrade("counting", version(json_to(second), rate=2_000))
        cluster.upgraded(cluster.upgrade("counting", version(json_to(second), rate=2_000), given_up=["out"]))
        assert cluster.wait("counting", PATIENCE_S).is_balanced
    check_each_once(first, second)


def test_whoever_waits_for_a_version_waits_until_all_of_it_runs(
    few: FewNodes, tmp_path: Path, version: Version
) -> None:
    """Its sources may be read before its sink has been opened, or cannot be."""
    first, directory = tmp_path / "first.json", tmp_path / "later"
    seen: list[str] = []

    def look(status: StatusTold) -> None:
        seen.append(status.state)
        if status.state == "troubled":
            directory.mkdir(exist_ok=True)

    with few.client(0) as cluster:
        cluster.submit(version(json_to(first)), at={"made": few.nodes[1].own.address})
        cluster.wait("counting", PATIENCE_S)
        told = cluster.upgrade("counting", version(json_to(directory / "second.json")), given_up=["out"])
        assert cluster.upgraded(told, look).version == 2
    assert "troubled" in seen
    assert {"running", "finished"}.isdisjoint(seen[:-1])
