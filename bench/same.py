"""Same-results check: every application on one node, on a cluster of eight peers, and on Structured Streaming.

    python -m bench.same --json same.json          # all three, on Spark
    python -m bench.same --quick --json same.json  # without Structured Streaming

The input is the application's own generator; on the cluster all run at once, each submitted through another node and
read at yet another one, with several instances of its operators where it has any. `same_trials.py` says how results are
compared.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.command_line import run_as_told
from bench.edge.peers import Peers
from bench.processes import this_machine
from bench.same_trials import TRIALS, Results, Trial, difference, read_results
from headwater.client.flow_text import EndsText
from headwater.dataflow.stream import Flow
from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows
from headwater.model.errors import EngineError, HeadwaterError
from headwater.runtime.node import Node
from headwater.runtime.service.local_cluster import LocalNodes
from headwater.twin.query import QueryEnding, run_structured
from headwater.twin.session import start_structured_session
from headwater.twin.settings import StructuredSettings
from headwater.workers.config import NodeConfig

Tell = Callable[[str], None]
Found = dict[str, Results | HeadwaterError]  # by application: what it gave, or why it gave nothing

PEERS: Final = 8
ZONES: Final = 4
CAPACITY: Final = 64  # operators on a node: all applications run at once
PATIENCE_S: Final = 300.0
ONE_TASK: Final = StructuredSettings(spark={"spark.sql.shuffle.partitions": "1"})
GOALS: Final = {"same_on_cluster": 1.0, "same_on_structured": 1.0}  # shares of the applications


def on_one_node(trials: Sequence[Trial], place: Path, *, spark: bool) -> Found:
    """Run applications on one node, one instance of everything."""
    found: Found = {}
    with Node(NodeConfig(spark=spark)) as node:
        apps = [(trial, node.deploy(_flow(trial, place, many=False))) for trial in trials]
        for trial, app in apps:
            node.wait(app)
            found[trial.app] = read_results(place / trial.app, "out") if app.error is None else app.error
    return found


def on_a_cluster(trials: Sequence[Trial], place: Path, *, spark: bool) -> Found:
    """Run applications on eight peers, all at once; each is submitted to one, and read at another."""
    found: Found = {}
    zones = [f"zone-{1 + number * ZONES // PEERS}" for number in range(PEERS)]
    with Peers(LocalNodes(place / "nodes", spark=spark, capacity=CAPACITY), zones) as peers:
        for number, trial in enumerate(trials):
            ends = EndsText(rows=trial.rows, sink=_sink(trial, place))
            reads = peers.nodes[(number + PEERS // 2) % PEERS].own.address
            with peers.client(number) as cluster:
                cluster.submit(trial.app, at={"input": reads}, ends=ends, settings=trial.written(many=True))
        for number, trial in enumerate(trials):
            with peers.client(number + 1) as cluster:
                try:
                    cluster.wait(trial.app, PATIENCE_S)
                    found[trial.app] = read_results(place / trial.app, "out")
                except HeadwaterError as failure:
                    found[trial.app] = failure
    return found


def on_structured(trials: Sequence[Trial], place: Path, tell: Tell) -> Found:
    """Run applications as queries of Structured Streaming, one after the other."""
    found: Found = {}
    place.mkdir(parents=True, exist_ok=True)
    session = start_structured_session(place)
    try:
        for trial in trials:
            began = time.monotonic()
            flow = _flow(trial, place, many=False)
            try:
                directory = place / trial.app / "query"
                run = run_structured(flow, session=session, directory=directory, settings=ONE_TASK, limit_s=PATIENCE_S)
                if run.ending is not QueryEnding.FINISHED:
                    raise EngineError(f"Structured Streaming did not get through it within {PATIENCE_S:.0f} s")
                found[trial.app] = read_results(place / trial.app, "out")
            except HeadwaterError as failure:
                found[trial.app] = failure
            tell(f"  {trial.app} on Structured Streaming: {time.monotonic() - began:.0f} s")
    finally:
        session.stop()
    return found


def _flow(trial: Trial, place: Path, *, many: bool) -> Flow:
    ends = Ends(rows=trial.rows, sink=_sink(trial, place))
    return load_flows(trial.app, ends, trial.written(many=many))[0]


def _sink(trial: Trial, place: Path) -> str:
    directory = place / trial.app
    directory.mkdir(parents=True, exist_ok=True)
    return str(directory / "out.json")


def compared(trials: Sequence[Trial], wanted: Found, found: Found, *, in_order: bool) -> dict[str, str | None]:
    """Return for every application in what it differs; None if in nothing."""
    verdicts: dict[str, str | None] = {}
    for trial in trials:
        due, come = wanted[trial.app], found[trial.app]
        if isinstance(due, HeadwaterError) or isinstance(come, HeadwaterError):
            verdicts[trial.app] = str(due if isinstance(due, HeadwaterError) else come)
        elif not any(due.values()):
            verdicts[trial.app] = "there are no results to compare"
        else:
            verdicts[trial.app] = difference(trial, due, come, in_order=in_order)
    return verdicts


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the check, as `headwater bench same` does."""
    with tempfile.TemporaryDirectory(prefix="headwater-same-", ignore_cleanup_errors=True) as scratch:
        place = Path(scratch)
        tell(f"{len(TRIALS)} applications on one node")
        wanted = on_one_node(TRIALS, place / "node", spark=True)
        tell(f"all at once on {PEERS} peers")
        verdicts = {
            "same_on_cluster": compared(
                TRIALS, wanted, on_a_cluster(TRIALS, place / "cluster", spark=True), in_order=True
            )
        }
        if not quick:
            tell("one after the other on Structured Streaming")
            twins = on_structured(TRIALS, place / "twin", tell)
            verdicts["same_on_structured"] = compared(TRIALS, wanted, twins, in_order=False)
    result = _result(verdicts, wanted)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def _result(verdicts: Mapping[str, Mapping[str, str | None]], wanted: Found) -> dict[str, Any]:
    ratios = {name: sum(why is None for why in each.values()) / len(each) for name, each in verdicts.items()}
    differences = {name: {app: why for app, why in each.items() if why} for name, each in verdicts.items()}
    rows = {
        app: {name: len(rows) for name, rows in results.items()}
        for app, results in wanted.items()
        if not isinstance(results, HeadwaterError)
    }
    details = {
        "machine": asdict(this_machine()),
        "applications": {trial.app: {"rows_in": trial.rows, "results": rows.get(trial.app)} for trial in TRIALS},
        "differences": differences,
        "goals": {name: f">= {GOALS[name]}" for name in ratios},
        "reached": {name: ratio >= GOALS[name] for name, ratio in ratios.items()},
        "limits": {
            name: "; ".join(f"{app}: {why}" for app, why in different.items())
            for name, different in differences.items()
            if different
        },
    }
    return {"ratios": ratios, "details": details, "figures": []}


if __name__ == "__main__":
    run_as_told(__doc__, run)
