"""The end of a run, for people and, as one JSON object, for programs."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.console import wording
from headwater.console.figures import AppFigures, NodeFigures, OperatorFigures, between
from headwater.console.live import told_lines
from headwater.console.running import RunEnding, RunOutcome
from headwater.console.screen import print_object
from headwater.engine.ledger import Ledger
from headwater.engine.status import AppState, Latency, NodeStatus
from headwater.model.quoting import plural


def print_summary(console: Console, outcome: RunOutcome, *, store_kept: bool) -> None:
    """Print the result of each app, and of the node."""
    node = between(None, outcome.status)
    for app in node.apps:
        _print_app(console, app, outcome.ending, store_kept)
    _print_node(console, node)


def _print_app(console: Console, app: AppFigures, ending: RunEnding, store_kept: bool) -> None:
    console.print()
    console.print(_headline(app, ending))
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    facts.add_row("rows", _rows(app))
    facts.add_row("latency", _latency(app.now.latency))
    if app.now.ledger is not None:
        facts.add_row("ledger", ledger_line(app.now.ledger))
        if app.now.ledger.waiting:
            facts.add_row("", _waiting(app.now.ledger.waiting, store_kept))
    console.print(facts)
    for line in told_lines(app):
        console.print(line)
    console.print()
    console.print(operator_totals(app.operators))


def _headline(app: AppFigures, ending: RunEnding) -> Text:
    took = wording.duration(app.seconds)
    match app.now.state:
        case AppState.FINISHED:
            return Text.assemble((app.now.name, "bold"), " ", (f"finished in {took}", "green"))
        case AppState.FAILED:
            return Text.assemble((app.now.name, "bold"), " ", (f"failed after {took}", "bold red"))
        case _:
            why = "stopped by you" if ending is RunEnding.INTERRUPTED else "stopped as asked"
            return Text.assemble((app.now.name, "bold"), " ", (f"{why} after {took}", "yellow"))


def _rows(app: AppFigures) -> str:
    return f"{app.now.rows_in:,} in ({wording.rate(app.in_per_s)}/s), {app.now.rows_out:,} out"


def _latency(latency: Latency) -> str:
    if latency.p50 is None:
        return "no row of the sample has arrived"
    p50, p95, p99 = (wording.milliseconds(value) for value in (latency.p50, latency.p95, latency.p99))
    return f"p50 {p50} ms, p95 {p95} ms, p99 {p99} ms (sample of {plural(latency.rows, 'row')})"


def ledger_line(ledger: Ledger) -> Text:
    """Return the account as the equation it is."""
    came = f"{ledger.rows_in:,} in + {ledger.made:,} made + {ledger.copied:,} copied"
    went = [f"{ledger.rows_out:,} out", f"{ledger.waiting:,} waiting", f"{ledger.merged:,} merged"]
    went += [f"{rows:,} {reason}" for reason, rows in ledger.dropped.items()]
    went.append(f"{ledger.duplicates_refused:,} duplicates refused")
    verdict = ("balanced", "green") if ledger.balanced else ("NOT BALANCED", "bold red")
    broken = "".join(f"\n{sentence}" for sentence in ledger.broken)
    return Text.assemble(verdict, ": ", came, " = ", " + ".join(went), (broken, "red"))


def _waiting(rows: int, store_kept: bool) -> str:
    told = f"{plural(rows, 'row')} were still waiting"
    return f"{told}; they go on with the next run on this store" if store_kept else f"{told}; --store DIR keeps them"


def operator_totals(operators: tuple[OperatorFigures, ...]) -> Table:
    """Return a line for each operator, over the whole run."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("operator", overflow="fold")
    for heading in ("rows in", "rows out", "waiting", "util", "T_Q ms", "T_S ms", "T_C ms", "turns"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in operators:
        is_chain = one.now.kind == "chain"
        table.add_row(
            one.now.name + (f" ×{one.now.instances}" if one.now.instances > 1 else ""),
            f"{one.now.rows_in:,}",
            f"{one.now.rows_out:,}",
            "" if one.now.kind == "source" else f"{one.now.waiting:,}",
            "" if one.utilisation is None else wording.share(one.utilisation),
            *(
                wording.milliseconds(value) if is_chain else ""
                for value in (one.queue_ms, one.schedule_ms, one.compute_ms)
            ),
            f"{one.now.turns:,}" if is_chain else "",
        )
    return table


def _print_node(console: Console, node: NodeFigures) -> None:
    now = node.now
    lost = f", {now.workers_lost} lost on the way" if now.workers_lost else ""
    console.print()
    console.print(
        Text.assemble(
            ("node  ", "dim"),
            f"{plural(now.workers, 'worker')}{lost}; {plural(now.turns, 'turn')} "
            f"({wording.rate(node.turns_per_s)}/s) by {now.policy}",
        )
    )
    for note in now.notes:
        console.print(Text(f"note  {note}", "yellow"))


def print_json(outcome: RunOutcome) -> None:
    """Print the run as one object on one line: the first app's keys on top, all apps under `apps` if there are more."""
    print_object(told(outcome))


def told(outcome: RunOutcome) -> dict[str, Any]:
    """Return the run as plain data."""
    node = between(None, outcome.status)
    apps = [_app_told(app) for app in node.apps]
    whole = dict(apps[0]) if apps else {}
    whole["node"] = _node_told(outcome.status) | {"ending": outcome.ending.value}
    return whole | {"apps": apps} if len(apps) > 1 else whole


def _app_told(app: AppFigures) -> dict[str, Any]:
    latency, ledger = app.now.latency, app.now.ledger
    return {
        "app": app.now.name,
        "state": app.now.state.value,
        **({"error": app.now.error} if app.now.error else {}),
        "rows_in": app.now.rows_in,
        "rows_out": app.now.rows_out,
        "seconds": round(app.seconds, 3),
        "latency_ms": {
            "p50": _rounded(latency.p50),
            "p95": _rounded(latency.p95),
            "p99": _rounded(latency.p99),
            "rows": latency.rows,
        },
        "ledger": None if ledger is None else _ledger_told(ledger),
        "operators": [_operator_told(one) for one in app.operators],
    }


def _ledger_told(ledger: Ledger) -> dict[str, Any]:
    return {
        "rows_in": ledger.rows_in,
        "rows_out": ledger.rows_out,
        "waiting": ledger.waiting,
        "made": ledger.made,
        "copied": ledger.copied,
        "merged": ledger.merged,
        "dropped": ledger.dropped,
        "duplicates_refused": ledger.duplicates_refused,
        "balanced": ledger.balanced,
        **({"broken": list(ledger.broken)} if ledger.broken else {}),
    }


def _operator_told(one: OperatorFigures) -> dict[str, Any]:
    now = one.now
    return {
        "name": now.name,
        "kind": now.kind,
        "stage": now.stage,
        "instances": now.instances,
        "rows_in": now.rows_in,
        "rows_out": now.rows_out,
        "waiting": now.waiting,
        "utilisation": _rounded(one.utilisation),
        "t_q_ms": _rounded(one.queue_ms),
        "t_s_ms": _rounded(one.schedule_ms),
        "t_c_ms": _rounded(one.compute_ms),
        "turns": now.turns,
        **({"told": now.told} if now.told else {}),
    }


def _node_told(status: NodeStatus) -> dict[str, Any]:
    return {
        "workers": status.workers,
        "spares": status.spares,
        "idle": status.idle,
        "workers_lost": status.workers_lost,
        "turns": status.turns,
        "epoch": status.epoch,
        "policy": status.policy,
        "pressure": status.pressure,
        "bytes_held": status.bytes_held,
        "memory_bytes": status.memory_bytes,
        "disk_bytes": status.disk_bytes,
        "notes": list(status.notes),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
