"""The engine benchmark's pieces, for a second each, on worker threads: shapes and counts, never times."""

import json
from collections import deque
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.arrivals import Arrivals, middle, percentiles, summarize
from bench.engine import GOALS, Plan, fastest_average, fastest_chain, plan_for, reached, run_plan
from bench.feeds import EndlessSource, MeasuringSink, PacedSource, Shape
from bench.ours import Fleet, Spans, average_flow, chain_flow
from bench.workload import CHAIN, KEPT, LAST_ROWS, Readings, averages, is_broken, lines_batch, run_chain
from headwater.dataflow.connectors import Ended, Idle, Rows
from headwater.engine.status import AppState
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig

SHORT = Spans(warmup_s=0.2, measure_s=0.4, windows=2)


def tiny_plan() -> Plan:
    """Everything but Structured Streaming, in a few seconds."""
    return Plan(
        structured=None,
        chain_rates=(500.0,),
        chain=SHORT,
        apps=(1, 2, 3),
        app=SHORT,
        saturated_s=(0.2, 0.5),
        bare_s=0.2,
        most_turns_s=0.3,
        turn_rows=(1, 20),
        turn_count=5,
        spark=False,
    )


def test_a_run_returns_all_ratios_and_draws_its_figures(tmp_path: Path) -> None:
    """What the command line prints and what is on disk are the same."""
    told: list[str] = []
    result = run_plan(tiny_plan(), tmp_path / "out" / "engine.json", told.append)
    assert json.loads((tmp_path / "out" / "engine.json").read_text()) == json.loads(json.dumps(result))
    ratios, details, figures = result["ratios"], result["details"], result["figures"]
    assert isinstance(ratios, dict)
    assert isinstance(details, dict)
    assert isinstance(figures, list)
    assert ratios.keys() == GOALS.keys()
    assert ratios["p50_vs_structured_streaming"] is None, "it has no other side in this plan"
    assert ratios["throughput_vs_bare_functions"] > 0
    assert ratios["p99_100_apps_vs_1_app"] > 0
    assert told
    assert all(Path(figure).stat().st_size > 0 for figure in figures)
    _check_details(details)
    lines = (tmp_path / "out" / "engine-percentiles.csv").read_text().splitlines()
    assert len(lines) == 1 + len(details["percentiles"])


def _check_details(details: dict[str, object]) -> None:
    table, costs, missed = details["percentiles"], details["saturated"], details["limits"]
    assert isinstance(table, dict)
    assert isinstance(costs, dict)
    assert isinstance(missed, dict)
    assert {"headwater chain 500 rows/s", "headwater average 1 app", "headwater average 3 apps"} <= table.keys()
    for row in table.values():
        values = list(row.values())
        assert values == sorted(values), row
        assert values[0] > 0
    assert costs["rows_per_s"] > 0
    assert costs["rows_per_turn"] >= 1
    most = details["most_turns"]
    assert isinstance(most, dict)
    assert most["turns_per_s"] > 0
    assert most["rows_per_queue"] == 1
    reached_all = details["reached"]
    assert isinstance(reached_all, dict)
    assert missed.keys() == {name for name, good in reached_all.items() if good is False}


@pytest.mark.parametrize("chaining", [True, False])
def test_every_row_of_the_chain_arrives_once(chaining: bool) -> None:
    """Those a working sensor has sent, and no others."""
    sink = MeasuringSink()
    with Node(NodeConfig(spark=False, chaining=chaining)) as node:
        app = node.deploy(chain_flow("chain", 2_000.0, sink, rows=600))
        assert len(app.graph.chains) == (1 if chaining else 5)
        assert node.wait(app, 30)
        assert app.state is AppState.FINISHED, app.error
    assert sink.rows == len(sink.arrivals()) == sum(not is_broken(row) for row in range(600))
    assert len(np.unique(sink.arrivals().created_us)) == sink.rows


def test_every_row_of_the_keyed_average_arrives_once() -> None:
    """Three copies, each with its own sensors."""
    with Node(NodeConfig(spark=False)) as node:
        sinks = [MeasuringSink() for _ in range(3)]
        apps = [node.deploy(average_flow(f"average-{number}", 1_000.0, sink, 300)) for number, sink in enumerate(sinks)]
        assert all(node.wait(app, 30) for app in apps)
    assert [sink.rows for sink in sinks] == [300, 300, 300]


def test_a_fleet_measures_only_rows_that_are_due_in_its_windows() -> None:
    """The warm-up does not count, and the windows add up to the whole."""
    with Node(NodeConfig(spark=False)) as node:
        fleet = Fleet(node, average_flow, 500.0)
        fleet.grow(2)
        measured = fleet.measure(SHORT)
        assert len(measured.windows) == SHORT.windows
        assert measured.summary.rows == sum(window.rows for window in measured.windows)
        assert 0 < measured.summary.rows < len(fleet.arrivals())
        assert measured.summary.p50 <= measured.summary.p90 <= measured.summary.p99 <= measured.summary.max
        fleet.remove()
        assert not node.apps


def test_a_paced_source_sends_each_row_at_its_instant() -> None:
    """Late polls bring several rows, each with the instant it was due."""
    reader = PacedSource(1_000.0, Shape.READINGS, rows=5).open(None)
    first, idle, late, end = (reader.poll(100, now) for now in (10_000, 10_100, 13_500, 14_000))
    assert isinstance(first, Rows)
    assert idle == Idle(11_000)
    assert isinstance(late, Rows)
    assert late.batch.column("created_us").to_pylist() == [11_000, 12_000, 13_000]
    assert isinstance(end, Rows)
    assert end.position == {"row": 5}
    assert reader.poll(100, 15_000) == Ended()


def test_an_endless_source_goes_on_where_it_stood() -> None:
    """Its rows are named by their number alone."""
    reader = EndlessSource().open(None)
    first, second = reader.poll(30, 0), reader.poll(30, 0)
    again = EndlessSource().open({"row": 30}).poll(30, 0)
    assert isinstance(first, Rows)
    assert isinstance(second, Rows)
    assert isinstance(again, Rows)
    assert _sensors(second.batch) == _sensors(again.batch) != _sensors(first.batch)


def _sensors(lines: pa.RecordBatch) -> list[str]:
    return [json.loads(line)["sensor"] for line in lines.column("line").to_pylist()]


def test_the_chain_keeps_what_a_working_sensor_sends() -> None:
    """Five steps from lines to four columns."""
    batch = run_chain(lines_batch(range(100), range(100)))
    assert len(CHAIN) == 5
    assert tuple(batch.schema.names) == KEPT
    assert batch.column("created_us").to_pylist() == [row for row in range(100) if not is_broken(row)]


def test_readings_made_beforehand_are_those_of_their_rows() -> None:
    """Also where the period begins anew."""
    readings = Readings()
    assert readings.batch(range(390, 410), range(20)).equals(readings.batch(range(190, 210), range(20)))


def test_the_average_is_over_the_last_rows() -> None:
    """The oracle is a slice."""
    values = [float(number * number % 17) for number in range(40)]
    means = list(averages(values, deque(maxlen=LAST_ROWS)))
    for end, mean in enumerate(means, start=1):
        last = values[max(0, end - LAST_ROWS) : end]
        assert mean == pytest.approx(sum(last) / len(last))


def test_percentiles_are_ordered_and_medians_are_taken_figure_by_figure() -> None:
    """Three windows, the middle one tells."""
    created = np.arange(1_000, dtype=np.int64)
    parts = [Arrivals(created, created + factor * (created + 1)) for factor in (1, 3, 2)]
    assert list(percentiles(parts[0]).values()) == sorted(percentiles(parts[0]).values())
    together = middle([summarize(part) for part in parts])
    assert together.p99 == summarize(parts[2]).p99
    assert together.rows == 3_000
    with pytest.raises(ValueError, match="no row arrived"):
        summarize(parts[0].between(5_000, 6_000))


def test_the_faster_baseline_counts_and_internal_options_do_not() -> None:
    """Nobody can say that the baseline was crippled, or that it was not stock."""
    told = {
        name: {"summary": {"p50": p50}}
        for name, p50 in (("chain_sql", 200.0), ("chain_arrow", 180.0), ("chain_sql_beyond_guide", 80.0))
    }
    assert fastest_chain(told)["summary"]["p50"] == 180.0
    averages_told = {
        name: {"summary": {"p99": p99}} for name, p99 in (("average", 5.0), ("average_two_partitions", 4.0))
    }
    assert fastest_average(told | averages_told)["summary"]["p99"] == 4.0


def test_goals_have_a_direction() -> None:
    """Most want more; many apps want less."""
    assert reached("throughput_vs_bare_functions", 0.6) is True
    assert reached("p99_100_apps_vs_1_app", 10.1) is False
    assert reached("p50_vs_structured_streaming", None) is None


def test_the_short_plan_is_short() -> None:
    """Its measuring alone leaves most of three minutes to starts and warm-ups."""
    plan = plan_for(quick=True, cores=2)
    assert plan.structured is not None
    theirs = 3 * plan.structured.chain_measure_s + plan.structured.apps_measure_s
    chain = plan.chain.warmup_s + plan.chain.windows * plan.chain.measure_s
    apps = len(plan.apps) * (plan.app.warmup_s + plan.app.windows * plan.app.measure_s)
    assert theirs + chain + apps + sum(plan.saturated_s) + plan.bare_s + plan.settle_s < 90
