"""The scheduler benchmark's pieces, on worker threads and for tenths of a second: shapes and counts, never times."""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from bench.processes import this_machine
from bench.scheduler import (
    OURS,
    RIVALS,
    THEIRS,
    Plan,
    Stage,
    plan_for,
    ratio_of,
    ratio_of_best,
    ratios_by_consumption,
    run_plan,
)
from bench.scheduler_contention import Contention, contention
from bench.scheduler_feed import BURST_US, TRACE_ROWS, BurstReader, Dial
from bench.scheduler_figures import draw_figures
from bench.scheduler_limits import evidence_of, limit
from bench.scheduler_player import NodePlayer, Probe
from bench.scheduler_run import P99_MS_MAX, Contender, Run, latency_of, utilisation_cv
from bench.scheduler_search import Search
from bench.scheduler_topologies import Topology, paper_topologies
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.connectors import Idle, Rows
from headwater.engine.policies import PolicyName
from headwater.model.errors import ConfigError
from headwater.model.histogram import Histogram

SHORT = Probe(warm_s=0.2, measure_s=0.3)


@dataclass(frozen=True)
class Numbers:
    """Rows that are their own number."""

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        return pa.record_batch({"line": pa.array([str(number) for number in range(first, first + count)])})


@dataclass(frozen=True, kw_only=True)
class Branches(hw.App):
    """Parses numbers, does two things to them, and publishes both."""

    name: ClassVar[str] = "branches"
    wire: ClassVar[hw.Wire] = "text"

    def made(self) -> Numbers:
        """Return a generator of numbers."""
        return Numbers()

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Fork and join."""
        parsed = rows.map(lambda batch: pa.record_batch({"n": batch["line"].cast(pa.int64())}), name="parse")
        doubled = parsed.map(lambda batch: pa.record_batch({"n": pc.multiply(batch["n"], 2)}), name="double")
        even = parsed.filter(lambda batch: pc.equal(pc.bit_wise_and(batch["n"], 1), 0), name="even")
        return doubled.union(even).map(lambda batch: batch, name="publish")


def branches(name: str = "pred") -> Topology:
    """Return it with two instances of one operator."""
    return Topology(name=name, app=Branches(), start_rate=200.0, rows_per_turn=100, paper=1.5, instances={"publish": 2})


def test_a_run_returns_all_ratios_and_draws_its_figures(tmp_path: Path) -> None:
    """What the command line prints and what is on disk are the same."""
    shares = {"pred": (0.5, 0.8, 1.0)}
    plan = Plan(
        topologies=(branches(), branches("stats")),
        stages=(
            Stage(contenders=(OURS, THEIRS), apps=("pred", "stats"), rounds=1, shares=shares),
            Stage(contenders=(Contender(OURS.policy, "all"),), apps=("stats",), shares={"stats": (0.5,)}),
            Stage(contenders=RIVALS[:1], apps=("pred",), shares={"pred": (0.5,)}),
        ),
        probes_max=2,
        probe=SHORT,
        warm_s=0.1,
        spark=False,
    )
    told: list[str] = []
    result = run_plan(plan, tmp_path / "out" / "scheduler.json", told.append)
    assert json.loads((tmp_path / "out" / "scheduler.json").read_text()) == json.loads(json.dumps(result))
    ratios, details, figures = result["ratios"], result["details"], result["figures"]
    assert isinstance(ratios, dict)
    assert isinstance(details, dict)
    assert isinstance(figures, list)
    assert ratios.keys() == {"pred_vs_owpoa", "stats_vs_owpoa"} == details["goals"].keys() == details["reached"].keys()
    assert details["held_rows_per_s"]["pred"].keys() == {"longest-queue", "one-worker-per-operator"}
    assert told
    assert {Path(one).stem for one in figures} >= {
        f"scheduler-{name}" for name in ("throughput-latency", "utilisation", "consumption", "cost")
    }
    assert all(Path(one).stat().st_size > 0 for one in figures)
    assert len(details["runs"]) == 2 * 4 + 2 * 3 + 1 + 1
    assert [one["contender"]["policy"] for one in details["runs"][-2:]] == ["longest-queue", "random"]


@pytest.mark.parametrize("policy", [PolicyName.LONGEST_QUEUE, PolicyName.ONE_WORKER_PER_OPERATOR])
def test_a_player_plays_every_row_through_every_operator(policy: PolicyName) -> None:
    """What was fed comes out by the end of a run, and what an operator got follows from it."""
    player = NodePlayer(policy, spark=False)
    few = Contender(policy, "50")
    try:
        player.deploy(branches(), 100.0, 0.1)
        first, second = player.measure(few, 2_000.0, SHORT), player.measure(Contender(policy), 300.0, SHORT)
    finally:
        player.close()
    assert (first.app, first.contender, first.rate, second.rate) == ("pred", few, 2_000.0, 300.0)
    assert first.operators.keys() == {"parse", "double", "even", "publish"}
    assert first.operators["publish"]["instances"] == 2
    assert first.latency_ms["rows"] > second.latency_ms["rows"] > 0
    assert first.latency_ms["p50"] <= first.latency_ms["p95"] <= first.latency_ms["p99"]
    assert all(0 <= one["utilisation"] <= 1 and one["rows_per_turn"] <= 50 for one in first.operators.values())
    assert first.costs["cpu_us_per_row"] > 0
    json.dumps(asdict(first))


def test_a_burst_comes_every_tenth_of_a_second() -> None:
    """A tenth of the rate at once, in batches, each row due at its burst however late it is asked for."""
    trace, dial = Numbers()(0, TRACE_ROWS), Dial(10_000.0)
    reader = BurstReader(trace, dial, 500, 0)
    now = 7 * BURST_US
    reader._due_us = now
    first, second, idle = (reader.poll(5_000, now) for _ in range(3))
    assert isinstance(first, Rows)
    assert isinstance(second, Rows)
    assert [first.batch.num_rows, second.batch.num_rows] == [500, 500]
    assert second.batch["line"].to_pylist()[-1] == "999"
    assert idle == Idle(8 * BURST_US)
    late = [reader.poll(5_000, now + 2 * BURST_US + 1) for _ in range(4)]
    assert [one.due_us for one in late if isinstance(one, Rows)] == [8 * BURST_US] * 2 + [9 * BURST_US] * 2
    assert reader.poll(5_000, now + 2 * BURST_US + 1) == Idle(10 * BURST_US)


def test_a_source_at_rest_begins_with_the_next_tenth_of_a_second() -> None:
    """And does not send what it would have sent meanwhile."""
    dial = Dial()
    reader = BurstReader(Numbers()(0, TRACE_ROWS), dial, 500, 0)
    assert reader.poll(100, 55 * BURST_US + 1) == Idle(56 * BURST_US)
    dial.rate = 20.0
    assert reader.poll(100, 55 * BURST_US + 2) == Idle(56 * BURST_US)
    polled = reader.poll(100, 56 * BURST_US)
    assert isinstance(polled, Rows)
    assert polled.batch.num_rows == 2
    assert polled.position == {"row": 2}


@given(rate=st.floats(0.5, 500), bursts=st.integers(1, 60))
def test_the_rows_of_many_bursts_add_up_to_the_rate(rate: float, bursts: int) -> None:
    """Also where a burst would have part of a row, or the trace begins anew."""
    reader = BurstReader(Numbers()(0, 100), Dial(rate), 20, 0)
    reader._due_us = 0
    rows = 0
    for burst in range(bursts):
        while isinstance(polled := reader.poll(30, burst * BURST_US), Rows):
            assert polled.batch["line"][0].as_py() == str(rows % 100)
            assert polled.due_us == burst * BURST_US
            rows += polled.batch.num_rows
    assert rows == pytest.approx(rate * bursts / 10, abs=1.001)


@given(border=st.integers(-30, 40), stride=st.integers(1, 12))
def test_a_search_finds_the_highest_rung_that_is_held(border: int, stride: int) -> None:
    """From wherever it starts."""
    search = Search(100.0, 1.1, stride, probes_max=100)
    while (rate := search.rate) is not None:
        search.note(held=rate <= 100.0 * 1.1**border * 1.0001)
    assert search.rate_held == pytest.approx(100.0 * 1.1**border)


def test_a_rate_missed_by_little_is_tried_once_more() -> None:
    """A hiccup must not decide; a second one does."""
    search = Search(100.0, 2.0, 1)
    search.note(held=True)
    search.note(held=False, near=True)
    again = search.rate
    search.note(held=False, near=True)
    assert (again, search.rate, search.rate_held) == (200.0, None, 100.0)


def test_a_search_ends_where_nothing_is_ever_held() -> None:
    """With the rate 0."""
    search = Search(100.0, probes_max=5)
    while search.rate is not None:
        search.note(held=False)
    assert (search.probes, search.rate_held) == (5, 0.0)


def test_the_topologies_are_those_of_the_paper() -> None:
    """As many instances of each operator as EdgeWise's own benchmark has."""
    counts = {}
    for topology in paper_topologies():
        flow = topology.tuned(topology.app.flow(topology.app.source(), lambda name: hw.to.nothing()))
        graph = compile_flow(flow, chaining=False)
        counts[topology.name] = sum(chain.parallelism for chain in graph.chains)
    assert counts == {"train": 8, "pred": 9, "stats": 9, "etl": 10}


def test_an_operator_that_is_not_there_cannot_be_tuned() -> None:
    """The message says which there are."""
    wrong = replace(branches(), instances={"pubish": 2})
    with pytest.raises(ConfigError, match=r"branches has no operator pubish; it has .*'publish'"):
        wrong.tuned(wrong.app.flow(wrong.app.source(), lambda name: hw.to.nothing()))


def a_run(contender: Contender, rate: float, p99: float) -> Run:
    """Return a run with round figures."""
    times = {"queue_ms": p99 / 5, "schedule_ms": 2.0, "compute_ms": 1.0}
    operators = {
        "parse": {"instances": 1, "busy_cores": 0.5, "waiting_max": 70, "utilisation": 0.6} | times,
        "publish": {"instances": 2, "busy_cores": 0.6, "waiting_max": 900, "utilisation": 0.2} | times,
    }
    costs = {
        "node_cores": 0.3,
        "jvm_cores": 0.0,
        "functions_cores": 1.0,
        "workers_cores": 1.3,
        "cpu_us_per_row": 12.0,
        "turns_per_s": 800.0,
        "rows_per_queue": 400.0,
        "workers_preemptions_per_s": 55.0,
        "workers_yields_per_s": 44.0,
        "workers_runnable": 3.0,
        "workers_waiting_for_a_core": 1.5,
        "others_cores": 0.0,
    }
    latency = {"mean": p99 / 2, "p50": p99 / 2, "p95": p99, "p99": p99, "rows": 100.0}
    return Run("pred", contender, rate, 2.0, rate, 2 * rate, latency, False, 0.5, operators, costs)


def test_a_rate_is_held_when_its_slowest_hundredth_is_within_the_limit() -> None:
    """And nearly held when a hiccup may have been at fault."""
    at, above, far = (a_run(OURS, 100.0, p99) for p99 in (P99_MS_MAX, P99_MS_MAX * 1.5, P99_MS_MAX * 3))
    assert [one.held for one in (at, above, far)] == [True, False, False]
    assert [one.nearly_held for one in (at, above, far)] == [True, True, False]
    assert not replace(at, given_up=True).held


def test_what_was_seen_at_the_highest_rates_held_says_what_is_left_to_gain() -> None:
    """Theirs used 1.6 cores: at that price nobody could hold more than so many times as much."""
    runs = [a_run(OURS, 120.0, 90.0), a_run(OURS, 150.0, 300.0), a_run(THEIRS, 100.0, 99.0), a_run(THEIRS, 80.0, 20.0)]
    seen = evidence_of(runs, OURS, THEIRS)
    assert seen is not None
    assert (seen.ours.rate, seen.theirs.rate, seen.ratio) == (120.0, 100.0, 1.2)
    assert seen.gain_left == pytest.approx(seen.cores / 1.6)
    assert (seen.theirs.longest_queue_of, seen.theirs.busiest) == ("publish", "parse")
    assert seen.most_possible == pytest.approx(seen.cores * 1e6 / 12.0 / 100.0)
    assert f"make {seen.most_possible:.2f} times the latter, so 1e+06 is out of reach" in limit(seen, 1e6)
    assert "so 1.5 leaves no core a moment's rest" in limit(seen, 1.5)
    assert evidence_of(runs[:2], OURS, THEIRS) is None


@pytest.mark.parametrize("unseen", [{"cpu_us_per_row": 0.0}, {"node_cores": 0.0, "workers_cores": 0.0004}])
def test_a_side_whose_cpu_was_not_counted_is_no_evidence(unseen: dict[str, float]) -> None:
    """On a busy machine a short run may end before the kernel has counted a tick; a ratio of that would be none."""
    ours, theirs = a_run(OURS, 120.0, 90.0), a_run(THEIRS, 100.0, 99.0)
    assert evidence_of([replace(ours, costs=ours.costs | unseen), theirs], OURS, THEIRS) is None
    assert evidence_of([ours, replace(theirs, costs=theirs.costs | unseen)], OURS, THEIRS) is None


def test_where_the_time_goes_is_drawn_for_rates_that_both_sides_held(tmp_path: Path) -> None:
    """Three of them; an app that has fewer gets no such picture."""
    rates = ((20.0, 10.0), (40.0, 15.0), (70.0, 30.0), (100.0, 80.0), (130.0, 400.0))
    runs = [a_run(side, rate, p99) for rate, p99 in rates for side in (OURS, THEIRS)]
    runs += [replace(one, app="etl") for one in runs[:4]]
    plan = Plan(topologies=(), stages=())
    drawn = {path.stem for path in draw_figures(runs, plan, this_machine(), tmp_path / "made.json")}
    assert drawn == {"made-throughput-latency", "made-utilisation", "made-breakdown-pred", "made-cost"}


def test_a_ratio_is_that_of_the_middle_round() -> None:
    """Rounds are pairs: what slowed a round down slowed down both of its sides."""
    held = {OURS: [100.0, 300.0, 150.0], THEIRS: [100.0, 150.0, 100.0]}
    assert ratio_of(held, OURS, THEIRS) == 1.5
    assert ratio_of({OURS: [100.0], THEIRS: [0.0]}, OURS, THEIRS) is None


def test_ratios_are_told_for_every_number_of_rows_that_both_sides_had() -> None:
    """What a policy gains depends on how much a turn does."""
    plan = Plan(topologies=(), stages=())
    few, all_of_them = Contender(OURS.policy, "10"), Contender(OURS.policy, "all")
    held = {OURS: [120.0], THEIRS: [100.0], few: [30.0], Contender(THEIRS.policy, "10"): [15.0], all_of_them: [90.0]}
    assert ratios_by_consumption(held, plan) == {"as in the ratio": 1.2, "10": 2.0}


def test_each_side_has_the_turns_that_are_best_for_it() -> None:
    """Of those that both were searched with."""
    plan = Plan(topologies=(), stages=())
    held = {OURS: [120.0], THEIRS: [100.0, 110.0], **{Contender(one.policy, "9"): [99.0] for one in (OURS, THEIRS)}}
    held |= {Contender(OURS.policy, "all"): [500.0]}
    assert ratio_of_best(held, plan) == pytest.approx(120 / 105, abs=0.001)
    assert ratio_of_best({}, plan) is None


def test_utilisation_varies_by_its_standard_deviation_over_its_mean() -> None:
    """EdgeWise, section 7.3.1: 0 where all operators are alike."""
    assert utilisation_cv({"a": {"utilisation": 0.2}, "b": {"utilisation": 0.6}}) == pytest.approx(0.5)
    assert utilisation_cv({"a": {"utilisation": 0.7}, "b": {"utilisation": 0.7}}) == 0.0
    assert utilisation_cv({"a": {"utilisation": 0.0}}) == 0.0


def test_without_any_row_the_latency_is_endless() -> None:
    """Rather than a zero that looks like a fast system."""
    nothing = replace(a_run(OURS, 100.0, 10.0), latency_ms=latency_of(Histogram()))
    assert nothing.p99_ms == float("inf")
    assert not nothing.held


def test_the_operating_system_tells_what_a_process_ran_and_waited() -> None:
    """This one has run; one that is gone has not."""
    before = contention([os.getpid()])
    sum(range(200_000))
    after = contention([os.getpid()])
    assert after.ran_s > 0
    assert after.since(before).yields >= 0
    assert contention([2**22 + 1]) == Contention()


def test_the_short_plan_is_short() -> None:
    """Its runs leave some of eight minutes to starts."""
    plan = plan_for(quick=True)
    a_probe = plan.probe.warm_s + plan.probe.measure_s
    usual = 5  # runs of a search that begins near its end: two to have it between, two to halve, one hiccup
    runs = sum(
        len(stage.contenders) * (usual * stage.rounds * len(stage.apps) + sum(map(len, stage.shares.values())))
        for stage in plan.stages
    )
    assert runs * a_probe < 6 * 60
    assert set(plan.stages[0].contenders) == {OURS, THEIRS}
    assert plan_for(quick=False).stages[0].rounds % 2 == 1, "so that there is a middle one"
