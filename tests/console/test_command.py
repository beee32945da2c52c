"""The command as a stranger runs it: a process with pipes, signals and an exit code."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import orjson
import pytest

import headwater as hw
from tests.console.flows import ENDLESS, LINEAR, Command, Start, Write


def test_the_version_is_that_of_the_package(headwater: Command) -> None:
    assert headwater("--version").stdout.strip() == f"headwater {hw.__version__}"


def test_without_words_the_help_names_every_command(headwater: Command) -> None:
    told = headwater().output
    for command in ("demo", "run", "explain", "bench"):
        assert command in told


def test_an_unknown_command_is_refused_in_one_line(headwater: Command) -> None:
    result = headwater("rum")
    assert (result.exit_code, result.stderr.splitlines()[0][:22]) == (2, "error: No such command")


@pytest.mark.parametrize(
    ("words", "exit_code", "sentence"),
    [
        (("nodes", "--to", "127.0.0.1:1", "--insecure", "--json"), 1, "127.0.0.1:1"),
        (("explain", "nowhere.py", "--json"), 1, "nowhere.py"),
        (("status", "--json"), 2, "Missing argument"),
        (("status", "app", "--jsn", "--json"), 2, "No such option"),
    ],
)
def test_who_asks_for_json_gets_errors_as_json(
    headwater: Command, words: tuple[str, ...], exit_code: int, sentence: str
) -> None:
    """On standard output, where answers are looked for; people find the sentence on standard error as always."""
    result = headwater(*words)
    told = orjson.loads(result.stdout.splitlines()[-1])
    assert (result.exit_code, list(told)) == (exit_code, ["error"])
    assert sentence in told["error"]
    assert result.stderr == f"error: {told['error']}\n"


def test_what_a_flow_prints_goes_elsewhere_than_the_object_that_was_asked_for(headwater: Command, write: Write) -> None:
    """Whoever reads standard output as JSON finds nothing else there."""
    result = headwater("explain", write("prints.py", f"print('built')\n{LINEAR}"), "--json")
    assert (orjson.loads(result.stdout)["flow"], result.stderr) == ("linear", "built\n")
    raises = headwater("explain", write("raises.py", "print('built')\nhalf\n"), "--json")
    assert list(orjson.loads(raises.stdout)) == ["error"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_object_is_json_in_every_locale(encoding: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "headwater", "explain", "größe.py", "--json"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"},
        cwd=tmp_path,
        timeout=500,
        check=False,
    )
    assert (told.returncode, orjson.loads(told.stdout)) == (1, {"error": "there is no file größe.py"})


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_full_device_is_told_in_one_sentence(form: tuple[str, ...]) -> None:
    """And by the exit code: whoever keeps what is printed in a file must not take a part of it for all."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "headwater", "apps", *form]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=500, check=False)
    sentence = "error: no space is left on the device; make room, or write elsewhere\n"
    assert (result.returncode, result.stderr) == (1, sentence)


def test_the_benchmarks_file_makes_no_error_json(headwater: Command) -> None:
    result = headwater("bench", "nothing", "--json", "out.json")
    assert (result.exit_code, result.stdout) == (1, "")


def test_apps_are_those_of_the_cluster_that_the_environment_names(
    headwater: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_TO", "127.0.0.1:1")
    monkeypatch.setenv("HEADWATER_INSECURE", "1")
    assert "127.0.0.1:1" in headwater("apps").stderr


@pytest.mark.parametrize(
    ("environment", "words", "reason"),
    [
        ({"HEADWATER_INSECURE": "1"}, ("--certs", "no-such-certs"), "no-such-certs"),
        ({"HEADWATER_CERTS": "no-such-certs"}, ("--insecure",), "nothing listens there"),
        ({"HEADWATER_CERTS": "no-such-certs"}, (), "no-such-certs"),
        ({"HEADWATER_CERTS": "c", "HEADWATER_INSECURE": "1"}, (), "HEADWATER_INSECURE), and not both"),
        ({}, ("--certs", "c", "--insecure"), "and not both"),
        ({}, ("--insecure", "--certs", "c"), "and not both"),
    ],
)
def test_certs_and_insecure_exclude_each_other_and_the_command_line_goes_before_the_environment(
    headwater: Command,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    words: tuple[str, ...],
    reason: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = headwater("nodes", "--to", "127.0.0.1:1", *words)
    assert (result.exit_code, reason in result.stderr) == (1, True), result.stderr


def test_python_m_headwater_runs_a_flow_and_prints_no_escape_codes_into_a_pipe(start: Start, write: Write) -> None:
    out, err = start("run", write("linear.py", LINEAR), "--no-spark").communicate(timeout=500)
    assert "linear finished in" in out
    assert "\x1b" not in out + err
    assert err == ""


def test_a_flow_file_that_raises_is_told_without_a_traceback(start: Start, write: Write) -> None:
    process = start("run", write("raises.py", "import headwater as hw\n\nhw.to.json.nothing_like_it\n"), "--no-spark")
    out, err = process.communicate(timeout=500)
    assert (process.returncode, out) == (1, "")
    assert "raises.py:3: AttributeError" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_in_order_and_the_last_line_is_still_told(
    start: Start, write: Write, number: signal.Signals
) -> None:
    process = start("run", write("endless.py", ENDLESS), "--no-spark", "--json")
    assert process.stderr is not None
    for line in process.stderr:
        if "endless running" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=500)
    told = orjson.loads(out.splitlines()[-1])
    assert (process.returncode, told["state"], told["node"]["ending"]) == (130, "stopped", "interrupted")
    assert told["ledger"]["balanced"]
    assert "Traceback" not in err


def test_a_live_table_is_drawn_on_a_terminal_and_taken_away_for_the_summary(write: Write) -> None:
    """The command has a terminal of its own."""
    words = [
        sys.executable,
        "-m",
        "headwater",
        "run",
        str(write("endless.py", ENDLESS)),
        "--no-spark",
        "--for",
        "1500ms",
    ]
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (40, 80))
    process = subprocess.Popen(words, stdin=its, stdout=its, stderr=its)
    os.close(its)
    shown = _all_shown(ours)
    assert process.wait(150) == 0
    assert "\x1b[" in shown
    for told in ("util", "T_Q", "turns/s"):
        assert told in shown
    assert re.search(r"stopped as asked after \d+\.\d s", shown)


def _all_shown(terminal: int) -> str:
    """Return what is written to a terminal until its last user lets go of it, which Linux tells as an error."""
    shown = b""
    with open(terminal, "rb", buffering=0) as screen:
        while True:
            try:
                read = screen.read(65_536)
            except OSError:
                read = b""
            if not read:
                return shown.decode(errors="replace")
            shown += read
