"""The peers benchmark without the peers: its pieces, what their programs are made of, and Headwater's own side."""

import json
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headwater as hw
from bench.peers import HEADWATER, Plan, plan_for, run_plan
from bench.rivals import riot_rows as riot
from bench.rivals.checking import Told, difference, told
from bench.rivals.contests import CONTESTS, NOWHERE, Input
from bench.rivals.driving import ROOT, Command
from bench.rivals.environments import BYTEWAX, MADE, Unavailable, directory, python_of
from bench.rivals.feeding import Feeder, Stage
from bench.rivals.measuring import Spans, highest_held
from bench.rivals.recording import Recorder
from bench.rivals.verdicts import ratios_of

ROWS = 1_500
TINY = Spans(settle_s=0.1, pace_s=0.3, burst_s=0.2, ladder=(0.3,), step_s=0.3)


@pytest.fixture(scope="module", params=CONTESTS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Input:
    """The first rows of each contest."""
    contest = CONTESTS[request.param]
    return Input.make(contest, tmp_path_factory.mktemp(contest.name), ROWS * (8 if contest.pace > 1_000 else 1))


def ours(made: Input) -> list[Any]:
    """Return what the application makes of these lines."""
    contest, app = made.contest, made.contest.app()
    schema = None if app.wire == "text" else app.schema
    rows = hw.read.text(made.lines) if schema is None else hw.read.json(made.lines, schema=schema)
    sinks: dict[str, Any] = defaultdict(hw.to.memory)
    hw.run(app.flow(rows, lambda name: sinks[name]), spark=False)
    return [item for name, sink in sinks.items() for item in contest.items(name, sink.table())]


def test_every_result_names_the_row_that_caused_it(made: Input) -> None:
    """Only what windows have at the end of the input is of no row."""
    results, rows = ours(made), len(np.load(made.offsets)) - 1
    causes = made.causes(results, rows)
    assert len(results) == len(causes) > 0
    assert causes.max() < rows
    assert (causes >= 0).sum() > 0.5 * len(results)
    if made.contest.name in ("stats", "pred", "tm"):
        assert NOWHERE not in causes


def stats_by_hand(lines: list[bytes], settings: Any) -> Iterator[Any]:
    """STATS as a loop over messages."""
    bloom = riot.bloom_of(riot.known_senders(settings["senders"]))
    kept: dict[str, riot.Summary] = defaultdict(riot.Summary)
    counts = [riot.DistinctCount() for _ in riot.MEASURED]
    for message in (riot.message(number, line) for number, line in enumerate(lines)):
        if message.source in bloom:
            yield from kept[message.source].statistics(message)
            yield from riot.counted(message, counts)


def pred_by_hand(lines: list[bytes], settings: Any) -> Iterator[Any]:
    """PRED as a loop over rows."""
    kept: dict[str, riot.ErrorEstimate] = defaultdict(riot.ErrorEstimate)
    for message in (riot.message(number, line) for number, line in enumerate(lines)):
        yield riot.answered(message, "DTC", float(riot.classified(message)))
        error = kept[message.source].estimated(message.values[4], riot.regressed(message))
        yield riot.answered(message, "MLR", error)


def etl_by_hand(lines: list[bytes], settings: Any) -> Iterator[Any]:
    """ETL as a loop over messages."""
    known = riot.known_senders(settings["senders"])
    bloom = riot.bloom_of(known)
    kept: dict[str, riot.Loaded] = defaultdict(riot.Loaded)
    for message in (riot.message(number, line) for number, line in enumerate(lines)):
        row, inserted = kept[message.source].rows(message, bloom, known)
        yield inserted
        yield riot.senml(row)


@pytest.mark.parametrize(("name", "by_hand"), [("stats", stats_by_hand), ("pred", pred_by_hand), ("etl", etl_by_hand)])
def test_the_peers_functions_say_what_the_applications_say(
    name: str, by_hand: Callable[[list[bytes], Any], Iterator[Any]], tmp_path: Path
) -> None:
    """Row by row, in plain Python, with the same names and the same numbers."""
    made = Input.make(CONTESTS[name], tmp_path, ROWS)
    expected, found = ours(made), list(by_hand(made.first_lines(ROWS), made.settings))
    assert difference(_told(made, expected), _told(made, found)) is None
    assert difference(_told(made, expected), _told(made, found[:-1])) is not None


def _told(made: Input, results: list[Any]) -> Told:
    return told(made.contest, results, made.causes(results, ROWS), ROWS)


def test_who_holds_no_step_of_the_ladder_has_held_the_common_pace_only() -> None:
    """However fast it worked off a burst: else it would count for more than one that holds all steps."""
    steps = {"0.5": {"rows_per_s": 5_000.0, "held": False}, "0.9": {"rows_per_s": 9_000.0, "held": False}}
    assert highest_held(steps, 1_000.0) == 1_000.0
    assert highest_held({**steps, "0.5": {"rows_per_s": 5_000.0, "held": True}}, 1_000.0) == 5_000.0


def test_results_that_differ_are_told() -> None:
    """A number, a name, a count: and nothing where only the last digits differ."""
    expected: Told = {("a",): [(1.0, None)], ("b",): [(2.0,), (3.0,)]}
    assert difference(expected, {("a",): [(1.0 + 1e-12, None)], ("b",): [(3.0,), (2.0,)]}) is None
    assert "instead of" in str(difference(expected, {("a",): [(1.1, None)], ("b",): [(3.0,), (2.0,)]}))
    assert "1 results instead of 2" in str(difference(expected, {("a",): [(1.0, None)], ("b",): [(3.0,)]}))
    assert "0 results instead of 1" in str(difference(expected, {("b",): [(3.0,), (2.0,)]}))
    assert difference({}, {}) is not None


def test_the_feeder_sends_every_line_once_to_every_copy(tmp_path: Path) -> None:
    """At a pace, and then as fast as they are taken."""
    made = Input.make(CONTESTS["tm"], tmp_path, 900)
    feeder = Feeder(made.lines, made.offsets, copies=1)
    received: list[bytes] = []
    reader = threading.Thread(target=_receive, args=(feeder.ports[0], received))
    reader.start()
    feeder.wait()
    fed = feeder.feed([Stage("pace", 5_000.0, 0.1), Stage("burst", None, 5.0, rows=300), Stage("rest", None, 5.0)])
    feeder.close()
    reader.join()
    assert b"".join(received) == made.lines.read_bytes()
    assert [(stage.first, stage.rows) for stage in fed] == [(0, 500), (500, 300), (800, 100)]


def _receive(port: int, received: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while data := connection.recv(1 << 16):
            received.append(data)


def test_a_recorder_keeps_the_first_results_and_then_some() -> None:
    """All are counted, whatever the batches; the first one is told once."""
    first: list[str] = []
    recorder = Recorder(4, 3, lambda: first.append("first"))
    for batch in ([0, 1], [], [2, 3], [4, 5, 6], [7], [8, 9, 10]):
        recorder.note(batch)
    assert [item for _, items in recorder.batches for item in items] == [0, 1, 2, 3, 6, 9]
    assert recorder.count == 11
    assert first == ["first"]


def test_environments_are_kept_and_a_peer_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    """The variable goes before the cache."""
    environ = {"HEADWATER_BENCH_ENVS": str(tmp_path), "XDG_CACHE_HOME": "/elsewhere"}
    assert directory(environ) == tmp_path
    assert directory({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/headwater/bench")
    place = tmp_path / f"bytewax-{BYTEWAX.version}"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    (place / MADE).write_text("\n".join(BYTEWAX.requirements))
    said: list[str] = []
    assert python_of(BYTEWAX, said.append, environ) == place / "bin" / "python"
    assert not said
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=f"bytewax {BYTEWAX.version} cannot be installed"):
        python_of(BYTEWAX, said.append, {"HEADWATER_BENCH_ENVS": str(tmp_path / "file")})
    assert said


def test_a_run_measures_headwater_and_tells_of_a_peer_that_is_not_there(tmp_path: Path) -> None:
    """From the feeder to the file, on worker threads; a ratio without its other side is none."""
    said: list[str] = []
    plan = Plan(
        engines=(HEADWATER, "bytewax"),
        contests=("tm",),
        spans=TINY,
        many=TINY,
        copies=(2,),
        rows=40_000,
        commands=_threads,
    )
    result = run_plan(plan, tmp_path / "out" / "peers.json", said.append)
    assert json.loads((tmp_path / "out" / "peers.json").read_text()) == json.loads(json.dumps(result))
    assert result["ratios"] == {"tm_throughput_vs_bytewax": None, "tm_p99_vs_bytewax": None}
    details = result["details"]
    assert details["failures"] == {"bytewax": {"start": "not on this machine"}}
    figures = details["engines"][HEADWATER]["tm"]
    assert figures["rows_per_s"] > 0
    assert figures["latency"]["p99"] >= figures["latency"]["p50"] > 0
    assert figures["steps"]["0.3"]["rows_per_s"] > 0
    assert details["many_apps"][HEADWATER]["2"]["latency"]["rows"] > 0
    assert "not on this machine" in (tmp_path / "out" / "peers.md").read_text()
    assert any("not on this machine" in line for line in said)
    assert all(Path(figure).stat().st_size > 0 for figure in result["figures"])


def _threads(engine: str, tell: Callable[[str], None], jobs: int) -> Command:
    if engine != HEADWATER:
        raise Unavailable("not on this machine")
    environment = {"PYTHONPATH": str(ROOT)}
    return Command(engine, Path(sys.executable), "bench.rivals.headwater_engine", environment, arguments=("threads",))


def test_all_ratios_of_the_issue_are_there() -> None:
    """Six applications, three peers, two ratios each; without figures they are none."""
    plan = plan_for(quick=True)
    peers = [engine for engine in plan.engines if engine != HEADWATER]
    ratios = ratios_of({}, {peer: {} for peer in peers}, plan.contests)
    assert set(ratios) == {
        f"{app}_{what}_vs_{peer}"
        for app in ("stats", "pred", "etl", "nexmark_q5", "nexmark_q7", "tm")
        for what in ("throughput", "p99")
        for peer in ("structured", "pyflink", "bytewax")
    }
    assert set(ratios.values()) == {None}


def test_the_short_plan_is_short() -> None:
    """Its measuring alone leaves most of ten minutes to starts and warm-ups."""
    plan = plan_for(quick=True)
    each = plan.spans.settle_s + plan.spans.pace_s + plan.spans.burst_s
    many = len(plan.copies) * (plan.many.settle_s + plan.many.pace_s)
    assert len(plan.engines) * (len(plan.contests) * each + many) < 240
    assert plan.budget_s < 600
    assert not plan.spans.ladder
