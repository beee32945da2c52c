"""Applications by name: listed, run between ends that a user picks, and refused in one sentence."""

import subprocess
import sys
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.dataflow.compile import compile_flow
from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows
from headwater.model.errors import ConfigError, FlowError
from tests.console.flows import Command, Write

COPIED = '''
from dataclasses import dataclass
from typing import ClassVar
import headwater as hw

@dataclass(frozen=True, kw_only=True)
class Upper(hw.App):
    """Writes words in capitals."""
    name: ClassVar[str] = "my.upper"
    wire: ClassVar[hw.Wire] = "text"
    times: int = 1

    def made(self):
        return lambda first, count: [{"line": f"w{n}"} for n in range(first, first + count)]

    def build(self, rows):
        words = rows.map(lambda row: {"line": row["line"].upper() * self.times}, form="rows")
        return {"loud": words, "silent": words.filter(hw.col("line") == "")}
'''


def test_all_are_listed_with_what_they_do(headwater: Command) -> None:
    told = orjson.loads(headwater("apps", "--json").stdout)["apps"]
    assert {"name": "storm.exclamation", "summary": "Adds three exclamation marks to every word, twice."} in told
    listed = headwater("apps").stdout
    assert all(app["name"] in listed for app in told)


def test_one_runs_by_name_on_a_file_and_into_a_file(headwater: Command, tmp_path: Path, write: Write) -> None:
    words = write("words.txt", "how\nnow\n")
    ended = headwater(
        "run", "storm.exclamation", "--no-spark", "--source", words, "--sink", tmp_path / "loud.csv", "--json"
    )
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "loud.csv").read_text(encoding="utf-8").split() == ['"line"', '"how!!!!!!"', '"now!!!!!!"']


@pytest.mark.parametrize(
    ("app", "file", "content", "bad"),
    [
        ("storm.exclamation", "words.txt", b"how\n\xff\nnow\n", 1),
        ("traffic.monitoring", "speeds.csv", b"vehicle,speed\nA,60\nA,fast\nA\nB,70\n", 2),
        ("traffic.monitoring", "speeds.json", b'{"vehicle":"A","speed":60}\n{"speed\n{"vehicle":"B","speed":70}\n', 1),
    ],
)
def test_a_bad_line_of_a_file_is_counted_and_the_run_goes_on(
    headwater: Command, tmp_path: Path, app: str, file: str, content: bytes, bad: int
) -> None:
    """As a message from a broker that is no row."""
    (tmp_path / file).write_bytes(content)
    told = orjson.loads(headwater("run", app, "--no-spark", "--source", tmp_path / file, "--json").stdout)
    assert (told["state"], told["rows_out"]) == ("finished", 2)
    assert (told["ledger"]["dropped"]["unparsable"], told["ledger"]["balanced"]) == (bad, True)
    summary = headwater("run", app, "--no-spark", "--source", tmp_path / file).stdout
    assert f"{bad} unparsable" in " ".join(summary.split())


def test_a_parquet_file_has_no_lines_to_skip(headwater: Command, tmp_path: Path) -> None:
    pq.write_table(pa.table({"vehicle": ["A"], "speed": [60.0]}), tmp_path / "speeds.parquet")
    ended = headwater("run", "traffic.monitoring", "--no-spark", "--source", tmp_path / "speeds.parquet", "--json")
    assert orjson.loads(ended.stdout)["rows_out"] == 1


def test_one_is_explained_by_name(headwater: Command, tmp_path: Path) -> None:
    assert headwater("explain", "storm.exclamation", "--svg", tmp_path / "x.svg").exit_code == 0
    assert "exclaim1" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_a_users_own_application_runs_like_those_that_ship(headwater: Command, write: Write, tmp_path: Path) -> None:
    """Several kinds of results go to a file each."""
    own = write("upper.py", COPIED)
    ended = headwater(
        "run", own, "--no-spark", "--rows", 2, "--set", "times=2", "--sink", tmp_path / "out.txt", "--json"
    )
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "out-loud.txt").read_text(encoding="utf-8").split() == ["W0W0", "W1W1"]
    assert (tmp_path / "out-silent.txt").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "storm.exclamtion"], "no application 'storm.exclamtion'; did you mean storm.exclamation?"),
        (["run", "storm.exclamation", "--set", "sede=1"], "has no option 'sede'; it has: seed"),
        (["run", "storm.exclamation", "--set", "seed"], "write an option of storm.exclamation as name=value"),
        (["run", "storm.exclamation", "--set", "seed=x"], "--set seed=x: give a whole number"),
        (["run", "traffic.monitoring", "--set", "speed_limit=x"], "--set speed_limit=x: give a number"),
        (["run", "traffic.monitoring", "--set", "speed_limit=nan"], "--set speed_limit=nan: give a number"),
        (["run", "storm.exclamation", "--rows", "-1"], "rows=-1 must be at least 0"),
        (["run", "storm.exclamation", "--source", "mqtt://u:p[x@127.0.0.1/a"], "in a user name or password, all but"),
        (["run", "storm.exclamation", "--sink", "mqtt://u:p℀x@127.0.0.1/a"], "in a user name or password, all but"),
        (["run", "storm.exclamation", "--source", "mqtt:/a"], "a broker is written mqtt://host/topic"),
        (["run", "storm.exclamation", "--sink", "out.doc"], "--sink out.doc: give mqtt://..., console, nothing, or"),
        (["run", "storm.exclamation", "--data", "here"], "storm.exclamation has no real data to read"),
        (["run", "riotbench.stats", "--set", "dataset=SYS"], "--set dataset=SYS: choose one of city, taxi, fit, grid"),
        (["run", "storm.exclamation", "--source", "tcp://u:s3cret@h/t"], "--source tcp://...: only mqtt and mqtts"),
        (["run", "storm.exclamation", "--sink", "tcp://u:s3cret@h/t"], "--sink tcp://...: only mqtt and mqtts"),
        (["run", "storm.exclamation", "--loop"], "--loop starts real data over"),
        (["run", "storm.exclamation", "--source", "a.txt", "--rows", "1"], "--rows is not for --source"),
        (["run", "storm.exclamation", "--source", "mqtt://h/t", "--rate", "1"], "--rate is not for a broker"),
    ],
)
def test_what_cannot_be_meant_is_refused(headwater: Command, words: list[str], sentence: str) -> None:
    refused = headwater(*words)
    assert refused.exit_code != 0
    assert sentence in refused.stderr
    assert "s3cret" not in refused.output


def test_a_flow_has_its_own_ends(write: Write) -> None:
    path = write("own.py", 'import headwater as hw\nf = hw.flow("f", hw.read.iterable([1]).sink(hw.to.nothing()))\n')
    with pytest.raises(ConfigError, match=r"--rate is for applications .*own\.py says this itself"):
        load_flows(str(path), Ends(rate=1.0))
    with pytest.raises(FlowError, match="takes no options"):
        load_flows(str(path), settings=["a=b"])
    assert [flow.name for flow in load_flows(str(path))] == ["f"]


def test_real_data_named_by_the_environment_is_for_those_that_have_some(
    headwater: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    assert headwater("run", "storm.exclamation", "--no-spark", "--rows", 5, "--json").exit_code == 0
    [made] = load_flows("riotbench.stats", Ends(rate=10.0), ["dataset=grid"])  # whose messages are not public
    assert [source.kind for source in compile_flow(made).sources.values()] == ["generator"]


def test_one_that_has_no_real_data_says_so_whatever_else_is_asked_of_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nexmark\.q5 has no real data"):
        load_flows("nexmark.q5", Ends(rows=5, data=tmp_path))


def test_an_application_is_told_where_the_real_data_is_also_if_its_rows_come_from_elsewhere(
    headwater: Command, write: Write, tmp_path: Path
) -> None:
    """Such as RIoTBench's, whose metadata lies beside the messages."""
    own = write(
        "upper.py",
        COPIED.replace("    def made", "    def with_data(self, data):\n        return Upper(times=3)\n\n    def made"),
    )
    words = write("words.txt", "a\n")
    ended = headwater(
        "run", own, "--no-spark", "--source", words, "--data", tmp_path, "--sink", tmp_path / "out.txt", "--json"
    )
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "out-loud.txt").read_text(encoding="utf-8").split() == ["AAA"]


def test_made_rows_can_be_had_though_there_is_real_data(
    headwater: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path / "nowhere"))
    ended = headwater("run", "riotbench.stats", "--no-spark", "--rows", 50, "--json")
    assert ended.exit_code == 0, ended.output


@pytest.mark.spark
def test_the_twin_runs_an_application_from_any_directory(tmp_path: Path) -> None:
    """Its functions are found by Spark's own Python workers, wherever the command was given."""
    words = ["run", "riotbench.pred", "--engine", "structured", "--rows", "20", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout.splitlines()[-1])["rows_out"] > 0
