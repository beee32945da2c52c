"""Running the flows of a file, in this process and on threads instead of Spark."""

from pathlib import Path

import orjson
import pytest

from tests.console.flows import ENDLESS, LINEAR, Command, Write

BOOM = """
import headwater as hw

def invert(row: hw.Row) -> hw.Row:
    return {"value": 10 / (row["value"] - 3)}

flow = hw.flow("boom", hw.read.iterable(range(10)).map(invert, name="invert").sink(hw.to.nothing()))
"""


def test_a_finished_run_ends_with_rows_latency_and_a_balanced_ledger(headwater: Command, write: Write) -> None:
    result = headwater("run", write("linear.py", LINEAR), "--no-spark")
    assert result.exit_code == 0
    assert "linear finished in" in result.stdout
    assert "100 in" in result.stdout
    assert "balanced: 100 in + 0 made + 0 copied = 90 out + 0 waiting + 0 merged + 10 filtered" in " ".join(
        result.stdout.split()
    )
    assert "\x1b" not in result.stdout


def test_json_is_one_object_and_nothing_else_on_standard_output(headwater: Command, write: Write) -> None:
    result = headwater("run", write("linear.py", LINEAR), "--no-spark", "--json")
    [line] = result.stdout.splitlines()
    told = orjson.loads(line)
    assert (told["app"], told["state"], told["rows_in"], told["rows_out"]) == ("linear", "finished", 100, 90)
    assert told["ledger"] == {
        "rows_in": 100,
        "rows_out": 90,
        "waiting": 0,
        "made": 0,
        "merged": 0,
        "copied": 0,
        "dropped": {"filtered": 10},
        "duplicates_refused": 0,
        "balanced": True,
    }
    assert set(told["latency_ms"]) >= {"p50", "p95", "p99"}
    assert [one["kind"] for one in told["operators"]] == ["source", "chain", "sink"]
    chain = told["operators"][1]
    assert (chain["name"], chain["stage"], chain["instances"]) == ("double → from-twenty", 1, 1)
    assert 0 <= chain["utilisation"] <= 1
    assert chain["t_c_ms"] > 0
    assert told["node"]["policy"] == "longest-queue"
    assert "starting" in result.stderr


def test_several_flows_run_on_one_node_and_are_told_together(headwater: Command, write: Write) -> None:
    two = LINEAR + '\nother = hw.flow("other", hw.read.iterable([1]).map(double).sink(hw.to.nothing()))\n'
    path = write("two.py", two)
    told = orjson.loads(headwater("run", path, "--no-spark", "--json").stdout)
    assert [(one["app"], one["rows_out"]) for one in told["apps"]] == [("linear", 90), ("other", 1)]
    assert told["app"] == "linear"
    picked = orjson.loads(headwater("run", f"{path}:other", "--no-spark", "--json").stdout)
    assert (picked["app"], "apps" in picked) == ("other", False)


def test_a_flow_that_raises_fails_with_operator_row_and_line(headwater: Command, write: Write) -> None:
    result = headwater("run", write("boom.py", BOOM), "--no-spark", "--json")
    assert result.exit_code == 1
    assert "error: flow 'boom', operator 'invert': ZeroDivisionError" in result.stderr
    assert "boom.py:5 in invert" in result.stderr
    assert '{"value":3}' in result.stderr
    assert "Traceback" not in result.stderr
    told = orjson.loads(result.stdout.splitlines()[-1])
    assert told["state"] == "failed"
    assert "operator 'invert'" in told["error"]
    assert told["ledger"]["balanced"]


def test_time_is_up_ends_an_endless_flow_in_order(headwater: Command, write: Write) -> None:
    result = headwater("run", write("endless.py", ENDLESS), "--no-spark", "--for", "300ms", "--json")
    told = orjson.loads(result.stdout)
    assert (result.exit_code, told["state"], told["node"]["ending"]) == (0, "stopped", "time-up")
    assert told["ledger"]["balanced"]
    assert told["rows_in"] > 0


def test_a_run_on_the_same_store_goes_on_where_the_last_one_stood(
    headwater: Command, write: Write, tmp_path: Path
) -> None:
    words = (
        "run",
        write("endless.py", ENDLESS),
        "--no-spark",
        "--store",
        tmp_path / "store",
        "--for",
        "300ms",
        "--json",
    )
    first, second = (orjson.loads(headwater(*words).stdout)["ledger"] for _ in range(2))
    assert second["rows_in"] > first["rows_in"]
    assert second["rows_out"] >= first["rows_out"] + first["waiting"]
    assert second["balanced"]


@pytest.mark.parametrize("policy", ["random", "round-robin", "min-latency", "min-memory", "one-worker-per-operator"])
def test_every_policy_can_be_asked_for(headwater: Command, write: Write, policy: str) -> None:
    options = ("--no-spark", "--no-chaining", "--policy", policy, "--consume", "7", "--workers", "1", "--json")
    told = orjson.loads(headwater("run", write("linear.py", LINEAR), *options).stdout)
    assert (told["node"]["policy"], told["state"], told["rows_out"]) == (policy, "finished", 90)
    assert [one["name"] for one in told["operators"] if one["kind"] == "chain"] == ["double", "from-twenty"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--for", "soon"), "'soon' is not a duration"),
        (("--for", "0s"), "leaves no time to run"),
        (("--memory", "much"), "'much' is not a size"),
        (("--memory", "3GB"), "must be above 0 and within the disk budget"),
        (("--workers", "99"), "99 workers are not possible"),
        (("--consume", "some"), "consumption 'some' is unknown"),
        (("--policy", "fair"), "'fair' is not one of"),
        (("--log-file", "/nowhere/at/all.log"), "the log file /nowhere/at/all.log cannot be written"),
        (("--metrics", "99999"), "metrics cannot be served"),
        (("--colour",), "No such option: --colour"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(
    headwater: Command, write: Write, options: tuple[str, ...], sentence: str
) -> None:
    result = headwater("run", write("linear.py", LINEAR), "--no-spark", *options)
    assert result.exit_code in (1, 2)
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


def test_a_source_that_cannot_be_opened_is_refused_in_one_line(headwater: Command, write: Write) -> None:
    text = 'import headwater as hw\nflow = hw.flow("f", hw.read.csv("no.csv").map(len).sink(hw.to.nothing()))\n'
    result = headwater("run", write("nofile.py", text), "--no-spark")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "no.csv" in result.stderr


def test_a_json_log_tells_time_level_logger_and_message_and_no_rows(
    headwater: Command, write: Write, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    headwater("run", write("linear.py", LINEAR), "--no-spark", "--log-format", "json", "--log-file", log)
    lines = [orjson.loads(line) for line in log.read_text().splitlines()]
    assert lines
    assert all({"ts", "level", "logger", "message"} <= set(line) for line in lines)
    assert any("flow 'linear' runs" in line["message"] for line in lines)
    assert '"value"' not in log.read_text()


COUNTING = """
import headwater as hw

def count(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    return {{"value": row["value"], "seen": (seen or 0) + 1}}, (seen or 0) + 1

def made(first: int, count: int) -> dict[str, list[int]]:
    return {{"value": [n % 3 for n in range(first, first + count)]}}

rows = hw.read.generator(made, rows={rows}, name="rows")
counted = rows{change}.key_by({key!r}).stateful(count, name="counts")
flow = hw.flow("counting", counted.sink(hw.to.json({out!r}), name="out"))
"""


def test_another_version_goes_on_in_the_store_when_it_is_told_to(
    headwater: Command, write: Write, tmp_path: Path
) -> None:
    """Refused without --upgrade, and with it where the key is another; then counts go on behind a new filter."""
    out, store = tmp_path / "out.json", ("--no-spark", "--json", "--store", tmp_path / "store")

    def version(rows: int, change: str = "", key: str = "value") -> Path:
        return write("counting.py", COUNTING.format(rows=rows, change=change, key=key, out=str(out)))

    assert headwater("run", version(30), *store).exit_code == 0
    changed = version(60, ".filter(hw.col('value') > 0)")
    refused = headwater("run", changed, *store)
    assert refused.exit_code == 1
    assert "--upgrade" in refused.stderr
    other_key = headwater("run", version(60, ".map(lambda batch: batch)", key="v"), *store, "--upgrade")
    assert (other_key.exit_code, "by key (value), and would look for it by key (v)" in other_key.stderr) == (1, True)
    changed = version(60, ".filter(hw.col('value') > 0)")
    assert orjson.loads(headwater("run", changed, *store, "--upgrade").stdout)["rows_in"] == 30
    seen = [orjson.loads(line) for line in out.read_text().splitlines()]
    assert [row["seen"] for row in seen if row["value"] == 1] == list(range(1, 21))
    assert [row["seen"] for row in seen if row["value"] == 0] == list(range(1, 11))


def test_what_is_about_a_store_needs_one(headwater: Command, write: Write) -> None:
    path = write("linear.py", LINEAR)
    for options in (("--upgrade",), ("--drain",), ("--store", "x", "--discard", "y")):
        result = headwater("run", path, "--no-spark", *options)
        assert (result.exit_code, "give --" in result.stderr) == (1, True)


def test_a_drain_lets_through_what_waits_and_reads_nothing(headwater: Command, write: Write, tmp_path: Path) -> None:
    """Rows that a broken function left behind, for a version in which it is mended."""
    store = ("--no-spark", "--json", "--store", tmp_path / "store")
    assert headwater("run", write("boom.py", BOOM), *store).exit_code == 1
    mended = BOOM.replace("10 / (row", "10 * (row")
    told = orjson.loads(headwater("run", write("boom.py", mended), *store, "--drain").stdout)
    assert (told["state"], told["rows_out"], told["ledger"]["waiting"]) == ("stopped", 10, 0)


TALKING = """
import headwater as hw

print("built")
flow = hw.flow("talking", hw.read.iterable([{"n": 1}]).select("n").sink(hw.to.console()))
"""


def test_what_a_flow_prints_does_not_come_between_a_program_and_its_json(headwater: Command, write: Write) -> None:
    """It is on standard error, with what is told while the run starts."""
    result = headwater("run", write("talking.py", TALKING), "--no-spark", "--json")
    assert orjson.loads(result.stdout)["rows_out"] == 1
    lines = result.stderr.splitlines()
    assert {"built", "n", "1", "starting worker threads"} <= set(lines), lines
