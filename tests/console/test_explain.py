"""Explaining a flow shows what it compiles to and runs none of it."""

from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest

from tests.console.flows import LINEAR, Command, Write
from tests.runtime.service.few_nodes import free_port

KEYED = """
import headwater as hw
import pyarrow as pa

def same(batch):
    return batch

def count(batch, state):
    return batch

rows = hw.read.csv("not-there.csv", schema=pa.schema([("city", pa.string()), ("x", pa.int64())]), name="rows")
checked = rows.map(same, name="check", on_error="dead-letter")
flow = hw.flow(
    "keyed",
    checked.key_by("city").stateful(count, name="count", parallelism=4).sink(hw.to.nothing(), name="end"),
    checked.errors.sink(hw.to.json("dead.jsonl"), name="dead"),
)
"""


def test_operators_stages_and_routes_are_told_though_the_source_does_not_exist(
    headwater: Command, write: Write
) -> None:
    result = headwater("explain", write("keyed.py", KEYED))
    assert result.exit_code == 0
    for told in ("city string, x int64", "map, dead letters", "check.errors", "key(city)", "exactly-once, can wait"):
        assert told in result.stdout, told
    assert not Path("dead.jsonl").exists()


def test_a_column_whose_name_has_brackets_is_told_whole(headwater: Command, write: Write) -> None:
    told = headwater("explain", write("keyed.py", KEYED.replace("city", "city[i]"))).stdout
    for words in ("city[i] string", "key(city[i])"):
        assert words in told, told


def test_json_tells_the_same(headwater: Command, write: Write) -> None:
    told = orjson.loads(headwater("explain", write("keyed.py", KEYED), "--json").stdout)
    assert told["flow"] == "keyed"
    assert [chain["operators"] for chain in told["chains"]] == [["check"], ["count"]]
    [keyed] = [route for route in told["routes"] if route["target"] == "count"]
    assert (keyed["spread"], keyed["key"]) == ("key", ["city"])
    [dead] = [route for route in told["routes"] if route["dead_letters"]]
    assert (dead["source"], dead["target"]) == ("check", "dead")
    assert told["operators"][0]["columns"] == [{"name": "city", "type": "string"}, {"name": "x", "type": "int64"}]


def test_without_chaining_every_operator_is_by_itself(headwater: Command, write: Write) -> None:
    path = write("linear.py", LINEAR)
    chained, single = (
        orjson.loads(headwater("explain", path, "--json", *more).stdout) for more in ((), ("--no-chaining",))
    )
    assert [len(told["chains"]) for told in (chained, single)] == [1, 2]


def test_a_picture_is_written(headwater: Command, write: Write, tmp_path: Path) -> None:
    picture = tmp_path / "keyed.svg"
    result = headwater("explain", write("keyed.py", KEYED), "--svg", picture)
    assert str(picture) in result.stdout.replace("\n", "")
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_of_several_flows_each_gets_its_picture(headwater: Command, write: Write, tmp_path: Path) -> None:
    two = LINEAR + '\nother = hw.flow("other", hw.read.iterable([1]).map(double).sink(hw.to.nothing()))\n'
    told = orjson.loads(headwater("explain", write("two.py", two), "--json", "--svg", tmp_path / "p.svg").stdout)
    assert [one["flow"] for one in told["flows"]] == ["linear", "other"]
    assert {path.name for path in tmp_path.glob("*.svg")} == {"p-linear.svg", "p-other.svg"}


def test_a_picture_that_cannot_be_written_fails_with_a_sentence(
    headwater: Command, write: Write, tmp_path: Path
) -> None:
    result = headwater("explain", write("linear.py", LINEAR), "--svg", tmp_path / "no" / "such.svg")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the picture ")


def test_a_file_is_explained_here_though_a_cluster_is_known_and_all_else_there(
    headwater: Command, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --to it is always the cluster's, as said."""
    path, nobody = write("linear.py", LINEAR), f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("HEADWATER_TO", nobody)
    monkeypatch.setenv("HEADWATER_INSECURE", "1")
    for file in (path, f"{path}:flow"):
        assert orjson.loads(headwater("explain", file, "--json").stdout)["flow"] == "linear"
    assert headwater("explain", "not-there.py").stderr == "error: there is no file not-there.py\n"
    for words in (("linear",), ("storm.word_count",), (path, "--to", nobody)):
        assert nobody in headwater("explain", *words).stderr
