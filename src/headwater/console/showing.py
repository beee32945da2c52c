"""Prints a cluster's answers for people: an app with its tree, apps, nodes. Programs use `--json`."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headwater.client.requests import (
    AppsTold,
    InstanceLine,
    LogsTold,
    NodesTold,
    PartLine,
    SinkLine,
    SourceLine,
    StatusTold,
)
from headwater.console import wording

STATE_STYLES = {
    "running": "cyan",
    "finished": "green",
    "failed": "bold red",
    "troubled": "yellow",
    "upgrading": "magenta",
    "deploying": "yellow",
    "nodes away": "yellow",
}
NOTE_COLUMNS: Final = 40  # the least width of a node's notes on a terminal; in a pipe they are one line
WIDE: Final = 10_000  # columns: more than any list has


# --- an app over its tree ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Branch:
    """A node in an app's tree, with its children."""

    address: str
    part: PartLine | None = None  # None: it only passes rows on
    below: list["Branch"] = field(default_factory=list)


def tree_of(parts: list[PartLine]) -> list[Branch]:
    """Build an app's tree from its nodes: those at the top are roots, of which there is one unless the ring changes."""
    above: dict[str, str] = {}
    for part in parts:
        way = [part.node, *part.above]
        above |= {below: parent for below, parent in pairwise(way) if below not in above}
    by_address = {part.node: part for part in parts}
    branches = {address: Branch(address, by_address.get(address)) for address in (*by_address, *above, *above.values())}
    roots = []
    for address, branch in branches.items():
        parent = above.get(address)
        if parent is None or _leads_back(address, above):
            roots.append(branch)
        else:
            branches[parent].below.append(branch)
    return roots


def _leads_back(address: str, above: dict[str, str]) -> bool:
    """Whether the path up from a node returns to it, as is possible while the ring is changing."""
    seen, at = {address}, above.get(address)
    while at is not None and at not in seen:
        seen.add(at)
        at = above.get(at)
    return at == address


def show_status(console: Console, told: StatusTold) -> None:
    """Print an app: its tree, with what runs on every node, its ledger, and its problems.

    Only the tree is fitted to the screen. A sentence is one line, which the terminal wraps: half of a path would be
    useless.
    """
    head = Text.assemble(
        (told.name, "bold"),
        "  ",
        (told.state, STATE_STYLES.get(told.state, "")),
        f"  version {told.version}   {told.rows_in:,} rows in, {told.rows_out:,} out, {told.waiting:,} waiting",
    )
    console.print(head, soft_wrap=True)
    console.print(tree_table(told.parts))
    for line in (ledger_line(told), *_problem_lines(told)):
        console.print(line, soft_wrap=True)


def tree_table(parts: list[PartLine]) -> Table:
    """Return the tree with a line for every node, source, chain and sink, in 80 columns.

    If there is too little room the tree is cut, since a part of a figure would be read as another figure. Rich narrows
    columns that may wrap, so the tree is one of these, with lines that never do.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False, expand=False)
    table.add_column(_one_line("the app's tree"))
    for heading in ("rows", "rows/s", "waiting", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for root in tree_of(parts):
        _add_branch(table, root, "", "", "")
    return table


def _one_line(*parts: str | Text | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _add_branch(table: Table, branch: Branch, lead: str, elbow: str, guide: str) -> None:
    """Add a node, its part, and its children; `lead` comes before its first line, `guide` before the others."""
    part = branch.part
    zone = "passes rows on" if part is None else part.zone
    table.add_row(_one_line((lead + elbow, "dim"), (branch.address, "bold"), (f"  {zone}", "dim")))
    bar = "│ " if branch.below else "  "
    for text, figures in () if part is None else _lines(part):
        table.add_row(_one_line((f"{lead}{guide}{bar} ", "dim"), text), *figures)
    for number, below in enumerate(branch.below):
        is_last = number == len(branch.below) - 1
        _add_branch(table, below, lead + guide, "└─ " if is_last else "├─ ", "   " if is_last else "│  ")


def _lines(part: PartLine) -> Iterator[tuple[Text, tuple[str, ...]]]:
    for source in part.sources:
        yield _source(source)
    for instance in part.instances:
        yield _instance(instance)
    for sink in part.sinks:
        yield _sink(sink)
    if part.leaving:
        yield Text("rows on their way elsewhere", "dim"), ("", "", wording.count(sum(part.leaving.values())))


def _source(one: SourceLine) -> tuple[Text, tuple[str, ...]]:
    state = "" if one.state == "reading" else f", {one.state}"
    name = Text.assemble("▸ ", one.name, (f"  {one.kind}, {one.guarantee}{state}", "dim"), _told(one))
    return name, (wording.count(one.rows), wording.rate(one.rate))


def _instance(one: InstanceLine) -> tuple[Text, tuple[str, ...]]:
    name = Text.assemble("  ", one.name, (f" #{one.number}", "dim"))
    return name, (wording.count(one.rows_in), wording.rate(one.rate), wording.count(one.waiting))


def _sink(one: SinkLine) -> tuple[Text, tuple[str, ...]]:
    name = Text.assemble("◂ ", one.name, (f"  {one.kind}, {one.guarantee}", "dim"), _told(one))
    latency = (wording.milliseconds(one.latency.p50), wording.milliseconds(one.latency.p99))
    return name, (wording.count(one.rows), wording.rate(one.rate), wording.count(one.waiting), *latency)


def _told(one: SourceLine | SinkLine) -> tuple[str, str]:
    return (f"\n  {one.told}" if one.told else "", "yellow")


def ledger_line(told: StatusTold) -> Text:
    """Return the ledger as one sentence."""
    ledger = told.ledger
    dropped = ", ".join(f"{rows:,} {reason}" for reason, rows in ledger.dropped.items())
    words = (
        f"in {ledger.rows_in:,} + made {ledger.made:,} + copied {ledger.copied:,} = out {ledger.rows_out:,} + "
        f"waiting {ledger.waiting:,} + merged {ledger.merged:,} + dropped {dropped or 0} + "
        f"duplicates {ledger.duplicates_refused:,}"
    )
    lacking = len(told.silent) + len(told.unaccounted)
    if lacking:
        nodes = "1 node is" if lacking == 1 else f"{lacking} nodes are"
        return Text.assemble((f"ledger is incomplete ({nodes} silent): ", "yellow"), words)
    if told.is_balanced:
        return Text.assemble(("ledger balances: ", "green"), words)
    return Text.assemble(("ledger does not balance, or rows moved while it was read: ", "yellow"), words)


def _problem_lines(told: StatusTold) -> Iterator[Text]:
    for note in told.notes:
        yield Text(note, "magenta")
    for error in told.errors:
        yield Text(error, "bold red" if told.state == "failed" else "yellow")
    if told.state == "failed":
        yield Text(
            f"rows wait: mend it (headwater upgrade {told.name} FLOW.py), or give it up (headwater stop {told.name})"
        )
    for place in told.missing:
        yield Text(f"missing: {place}", "yellow")
    for address in told.silent:
        yield Text(f"silent: {address}", "yellow")
    for address in told.unaccounted:
        yield Text(f"silent: {address}, where nothing of it is to run any more; its account is lacking", "yellow")


# --- lists ------------------------------------------------------------------------------------------------------------


def show_apps(console: Console, told: AppsTold) -> None:
    """Print the apps of a cluster."""
    table = _list("app", "id", "version", "state", "nodes", "submitted by", "to")
    for app in told.apps:
        cells = (app.name, app.id, str(app.version), app.state, str(app.nodes), app.submitter, app.owner)
        table.add_row(*map(Text, cells))
    if told.apps:
        _print_whole(console, table)
    else:
        console.print("no apps")
    _show_silent(console, told.silent)


def show_nodes(console: Console, told: NodesTold) -> None:
    """Print the nodes of a cluster."""
    table = _list("node", "id", "zone", "operators", "apps")
    table.add_column("", max_width=NOTE_COLUMNS if console.is_terminal else None)
    for one in told.nodes:
        refused = ", ".join(f"{count} {reason}" for reason, count in one.refused.items())
        note = "; ".join([*one.notes, *([f"refused: {refused}"] if refused else [])])
        state = "leaving" if one.is_draining else f"{one.load} of {one.capacity}"
        table.add_row(*map(Text, (one.address, one.id[:8], one.zone, state, str(one.apps), note)))
    _print_whole(console, table)
    _show_silent(console, told.silent)


def show_logs(console: Console, told: LogsTold) -> None:
    """Print log lines in their full length."""
    for line in told.lines:
        at = dt.datetime.fromtimestamp(line.at_us / 1e6).astimezone()
        console.print(Text(f"{at:%Y-%m-%d} {line.node} {line.text}"), soft_wrap=True)
    _show_silent(console, told.silent)


def _list(*headings: str) -> Table:
    """Return a table for cells that are `Text`: brackets in a plain `str`, as of IPv6 addresses, are markup."""
    return Table(*headings, box=None, header_style="dim")


def _print_whole(console: Console, table: Table) -> None:
    """Print a table in its full width, even beyond the screen: half of an id or an address would be useless."""
    needed = Measurement.get(console, console.options.update(max_width=WIDE), table).maximum
    console.width = max(console.width, needed)
    console.print(table)


def _show_silent(console: Console, addresses: list[str]) -> None:
    for address in addresses:
        console.print(Text(f"silent: {address}", "yellow"), soft_wrap=True)
