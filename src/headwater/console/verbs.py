"""`headwater submit`, `status`, `nodes`, `stop`, `drain`, `logs`: what a user asks of a cluster, through any node."""

import datetime as dt
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import typer
from rich.table import Table

from headwater.console.run import SetOption
from headwater.console.screen import screen
from headwater.model.errors import ConfigError, EngineError
from headwater.runtime.service.client import Cluster
from headwater.runtime.service.flow_text import EndsText
from headwater.runtime.service.requests import AppsTold, DrainTold, NodeLine, StatusTold

ToOption = Annotated[
    str, typer.Option("--to", metavar="HOST:PORT", envvar="HEADWATER_TO", help="A node of the cluster.")
]
CertsOption = Annotated[
    Path | None,
    typer.Option("--certs", metavar="DIR", envvar="HEADWATER_CERTS", help="What `headwater certs user` made."),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", envvar="HEADWATER_INSECURE", help="Without certificates, on this machine only.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
HERE = "127.0.0.1:7100"


def submit(
    flow: Annotated[
        str, typer.Argument(metavar="FLOW.py[:NAME]|APP", help="A file with flows, or an application by name.")
    ],
    to: ToOption = HERE,
    name: Annotated[str, typer.Option(help="Of the app.", show_default="that of the flow")] = "",
    zone: Annotated[str, typer.Option(help="Of the node that answers for it.", show_default="that of --to")] = "",
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=NODE", help="Where a source is read; may be repeated.", show_default="--to"),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Rows a second into an application.", show_default="all")] = None,
    rows: Annotated[int | None, typer.Option(help="Make so many rows, then end.", show_default="no end")] = None,
    data: Annotated[str | None, typer.Option(metavar="DIR", help="An application's real data, on the nodes.")] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Start real data over when it ends.")] = False,
    source: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="Where an application's rows come from.")
    ] = None,
    sink: Annotated[str | None, typer.Option(metavar="URL|FILE", help="Where an application's results go.")] = None,
    settings: SetOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and tell how it went.")] = False,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Have a cluster run a file's flows, or an application."""
    ends = EndsText(rate=rate, rows=rows, data=data, loop=loop, source=source, sink=sink)
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        submitted = cluster.submit(flow, zone=zone, at=_places(at or []), ends=ends, settings=settings or (), name=name)
        if wait:
            for one in submitted:
                _show_status(cluster.wait(one.app), as_json=as_json)
            return
    if as_json:
        _print_json({"submitted": submitted})
        return
    for one in submitted:
        print(f"{one.app} is being deployed; {one.owner} answers for it (headwater status {one.app} --to {to})")


def _places(written: list[str]) -> dict[str, str]:
    places = {}
    for one in written:
        source, equals, place = one.partition("=")
        if not equals or not source or not place:
            raise ConfigError(f"--at {one}: write it as SOURCE=HOST:PORT")
        places[source] = place
    return places


def status(
    app: Annotated[str, typer.Argument(help="An app's name or id.")],
    to: ToOption = HERE,
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until Ctrl-C.")] = False,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell how an app is: where it runs, rates, queues, ledger, and what its sources and sinks guarantee."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        _show_status(cluster.status(app), as_json=as_json)
        while watch:
            time.sleep(2)
            _show_status(cluster.status(app), as_json=as_json)


def _show_status(told: StatusTold, *, as_json: bool) -> None:
    if as_json:
        _print_json(told)
        return
    console = screen()
    console.print(
        f"{told.name}: {told.state}, {told.rows_in:,} rows in, {told.rows_out:,} out, {told.waiting:,} waiting"
    )
    table = Table("node", "what", "rows", "rows/s", "waiting", "")
    for part in sorted(told.parts, key=lambda part: part.node):
        for source in part.sources:
            note = f"{source.state}, {source.guarantee}"
            table.add_row(part.node, f"source {source.name}", f"{source.rows:,}", f"{source.rate:,.0f}", "", note)
        for one in part.instances:
            table.add_row(
                part.node, f"{one.number} {one.name}", f"{one.rows_in:,}", f"{one.rate:,.0f}", f"{one.waiting:,}", ""
            )
        for sink in part.sinks:
            late = "" if sink.latency.p50 is None else f", p50 {sink.latency.p50:,.1f} p99 {sink.latency.p99:,.1f} ms"
            note = f"{sink.guarantee}{late}"
            table.add_row(
                part.node, f"sink {sink.name}", f"{sink.rows:,}", f"{sink.rate:,.0f}", f"{sink.waiting:,}", note
            )
        if part.leaving:
            table.add_row(part.node, "on the way elsewhere", "", "", f"{sum(part.leaving.values()):,}", "")
    console.print(table)
    balance = "balances" if told.is_balanced else "DOES NOT BALANCE (or rows moved while it was read)"
    console.print(f"ledger {balance}: {_ledger_words(told)}", soft_wrap=True)
    for problem in (*told.errors, *(f"missing: {one}" for one in told.missing), *_silent(told.silent)):
        console.print(problem, soft_wrap=True, markup=False)


def _ledger_words(told: StatusTold) -> str:
    ledger = told.ledger
    dropped = ", ".join(f"{rows:,} {reason}" for reason, rows in ledger.dropped.items())
    return (
        f"in {ledger.rows_in:,} + created {ledger.created:,} + copied {ledger.copied:,} = out {ledger.rows_out:,} + "
        f"waiting {ledger.waiting:,} + dropped {dropped or 0} + duplicates {ledger.duplicates_refused:,}"
    )


def _silent(addresses: list[str]) -> list[str]:
    return [f"silent: {address}" for address in addresses]


def show_apps(told: AppsTold, *, as_json: bool) -> None:
    """Print the apps of a cluster."""
    if as_json:
        _print_json(told)
        return
    table = Table("app", "id", "state", "nodes", "submitted by", "to")
    for app in told.apps:
        table.add_row(app.name, app.id, app.state, str(app.nodes), app.submitter, app.owner)
    screen().print(table if told.apps else "no apps")
    for line in _silent(told.silent):
        print(line)


def nodes(
    to: ToOption = HERE, certs: CertsOption = None, insecure: InsecureOption = False, as_json: JsonOption = False
) -> None:
    """List the nodes of a cluster."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.nodes()
    if as_json:
        _print_json(told)
        return
    table = Table("node", "id", "zone", "operators", "apps", "")
    for one in told.nodes:
        refused = ", ".join(f"{count} {reason}" for reason, count in one.refused.items())
        note = "; ".join([*one.notes, *([f"refused: {refused}"] if refused else [])])
        state = "leaving" if one.is_draining else f"{one.load} of {one.capacity}"
        table.add_row(one.address, one.id[:8], one.zone, state, str(one.apps), note)
    screen().print(table)
    for line in _silent(told.silent):
        print(line)


def stop(
    app: Annotated[str, typer.Argument(help="An app's name or id.")],
    to: ToOption = HERE,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """End an app, and delete what it has on all nodes."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.stop(app)
    if as_json:
        _print_json(told)
    else:
        print(f"{told.app} has ended")


def drain(
    node: Annotated[str, typer.Argument(help="A node's address, or the first digits of its id.")],
    to: ToOption = HERE,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is gone.")] = True,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a node leave for good: what runs there moves to others with its state, and then it ends."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.drain(node)
        if not as_json:
            print(f"{told.node} is leaving: {_left(told)}")
        while wait and (found := _find_node(cluster, told.node)):
            news = cluster.drain(told.node) if found.is_draining else told
            if news != told and not as_json:
                print(f"{told.node}: {_left(news)}")
            told = news
            time.sleep(1)
    if as_json:
        _print_json(told)
    elif wait:
        print(f"{told.node} has left, and nothing of any app is left there")


def _find_node(cluster: Cluster, address: str) -> NodeLine | None:
    told = cluster.nodes()
    if address in told.silent:
        raise EngineError(f"{address} does not answer; it goes on leaving when it is back (see `headwater nodes`)")
    return next((node for node in told.nodes if node.address == address), None)


def _left(told: DrainTold) -> str:
    if told.left:
        return (
            f"{len(told.left)} instances have yet to move ({', '.join(told.left[:5])}{' ...' * (len(told.left) > 5)})"
        )
    return told.waits_for or "nothing runs there any more"


def logs(
    to: ToOption = HERE,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many.")] = 50,
    node: Annotated[str, typer.Option(metavar="NODE", help="Of this node only.", show_default="all")] = "",
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the last lines of the nodes' logs."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.logs(lines, node)
    if as_json:
        _print_json(told)
        return
    for line in told.lines:
        at = dt.datetime.fromtimestamp(line.at_us / 1e6).astimezone()
        print(f"{at:%Y-%m-%d} {line.node} {line.text}")


def _print_json(told: Any) -> None:
    print(orjson.dumps(msgspec.to_builtins(told)).decode(), flush=True)
