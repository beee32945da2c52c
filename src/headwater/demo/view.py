"""The display of the demo: on a terminal of 80 by 24 a picture that is redrawn, elsewhere lines.

The picture has a line for every app, each app's tree with what runs where, and the latest events.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Final, Protocol, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headwater.client.requests import PartLine, StatusTold
from headwater.console import wording
from headwater.console.showing import STATE_STYLES, Branch, tree_of
from headwater.engine.status import Latency

EVENTS_SHOWN: Final = 4
TREE_WIDTH: Final = 25  # three side by side in 80 columns
PLAIN_LINE_S: Final = 5.0
REFRESHES_PER_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Picture:
    """What is displayed."""

    elapsed_s: float
    limit_s: float
    apps: Sequence[StatusTold]
    names: Mapping[str, str]  # of the peers, by address


class DemoView(Protocol):
    """Displays the demo."""

    def __enter__(self) -> Self:
        """Begin the display."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the display in order."""
        ...

    def working(self, message: str) -> None:
        """Show that something is being done that takes a while."""
        ...

    def happened(self, at_s: float, message: str) -> None:
        """Show an event."""
        ...

    def show(self, picture: Picture) -> None:
        """Show the present state."""
        ...


class PlainDemo:
    """Prints a line per app from time to time, one per event, and an app's tree whenever that has changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_line = 0.0
        self._trees: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def working(self, message: str) -> None:
        """Print what is being done."""
        self._print(f"{message} ...")

    def happened(self, at_s: float, message: str) -> None:
        self._print(f"{_clock(at_s)}  {message}")

    def show(self, picture: Picture) -> None:
        """Print a line for every app, but not too often, unless its tree is new: it may have ended by the next call."""
        is_due = time.monotonic() >= self._next_line
        if is_due:
            self._next_line = time.monotonic() + PLAIN_LINE_S
        for app in picture.apps:
            tree = " | ".join(str(line).rstrip() for line in tree_lines(app, picture.names))
            is_new = bool(tree) and app.name not in self._trees
            if is_due or is_new:
                self._print(f"{_clock(picture.elapsed_s)}  {_plain_line(app)}")
                self._tell_tree(app.name, tree)

    def _tell_tree(self, app: str, tree: str) -> None:
        if tree and tree != self._trees.get(app):
            self._trees[app] = tree
            self._print(f"       {app}'s tree: {tree}")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)


class LiveDemo:
    """Draws the picture on a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_S, transient=True)
        self._events: deque[Text] = deque(maxlen=EVENTS_SHOWN)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def working(self, message: str) -> None:
        self._live.update(Spinner("dots", text=f" {message} ..."), refresh=True)

    def happened(self, at_s: float, message: str) -> None:
        """Show it below the picture."""
        event = Text.assemble((f"{_clock(at_s)}  ", "dim"), message, no_wrap=True, overflow="ellipsis")
        self._events.append(event)

    def show(self, picture: Picture) -> None:
        self._live.update(drawn(picture, list(self._events)), refresh=True)


def demo_view_on(console: Console, *, plain: bool = False) -> DemoView:
    """Return the view that suits the console."""
    return PlainDemo(console) if plain or not console.is_terminal else LiveDemo(console)


def _clock(at_s: float) -> str:
    """Return a time since the peers are in the ring."""
    return f"{at_s:5.1f} s"


# --- the picture ------------------------------------------------------------------------------------------------------


def drawn(picture: Picture, events: Sequence[Text]) -> RenderableType:
    """Return the whole picture; it fits 80 columns and 24 lines."""
    zones = len({name.rpartition("-")[0] for name in picture.names.values()})
    head = Text.assemble(
        ("Headwater", "bold"),
        f"  {len(picture.names)} peers in {zones} zones, {len(picture.apps)} apps",
        (f"   {wording.duration(picture.elapsed_s)} of {wording.duration(picture.limit_s)}", "dim"),
    )
    trees = [_tree(app, picture.names) for app in picture.apps]
    legend = Text("trees: ▸ readings come in, ◂ results go out", "dim")
    return Group(head, Text(), app_table(picture.apps), Text(), legend, Columns(trees, width=TREE_WIDTH), *events)


def app_table(apps: Sequence[StatusTold]) -> Table:
    """Return a line for every app."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("app", no_wrap=True, min_width=7)
    table.add_column("", no_wrap=True, min_width=9)
    for heading in ("in", "out", "rows/s", "waiting", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=7)
    table.add_column("ledger", no_wrap=True)
    for app in apps:
        p50, p99 = _latency(app)
        state = Text(app.state, STATE_STYLES.get(app.state, ""))
        figures = (wording.count(app.rows_in), wording.count(app.rows_out), wording.rate(_rate(app)))
        table.add_row(Text(app.name, "bold"), state, *figures, wording.count(app.waiting), p50, p99, _balance(app))
    return table


def story_table(apps: Sequence[StatusTold], latencies: Mapping[str, Sequence[Latency]]) -> Table:
    """Return a line for every app at the end: the median of p50, and the worst p99."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("app", no_wrap=True, min_width=7)
    table.add_column("", no_wrap=True, min_width=9)
    for heading in ("in", "out", "peers", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=7)
    table.add_column("ledger", no_wrap=True)
    for app in apps:
        seen = latencies.get(app.name, ())
        p50 = median(one.p50 or 0.0 for one in seen) if seen else None
        p99 = max((one.p99 or 0.0 for one in seen), default=None)
        figures = (wording.count(app.rows_in), wording.count(app.rows_out), str(len(app.parts)))
        state = Text(app.state, STATE_STYLES.get(app.state, ""))
        times = (wording.milliseconds(p50), wording.milliseconds(p99))
        table.add_row(Text(app.name, "bold"), state, *figures, *times, _balance(app))
    return table


def _balance(app: StatusTold) -> Text:
    return Text("balances", "green") if app.is_balanced else Text("moving", "dim")


def _rate(app: StatusTold) -> float:
    return sum(source.rate for part in app.parts for source in part.sources)


def latency_at_sink(app: StatusTold) -> Latency | None:
    """Return the recent latency of the app's slowest sink; None if it had no rows lately."""
    sinks = [sink.latency for part in app.parts for sink in part.sinks if sink.latency.p50 is not None]
    return max(sinks, key=lambda latency: latency.p99 or 0.0, default=None)


def _latency(app: StatusTold) -> tuple[str, str]:
    latency = latency_at_sink(app)
    if latency is None:
        return wording.NONE, wording.NONE
    return wording.milliseconds(latency.p50), wording.milliseconds(latency.p99)


def _plain_line(app: StatusTold) -> str:
    p50, p99 = _latency(app)
    return (
        f"{app.name} {app.state}: {app.rows_in:,} in ({wording.rate(_rate(app))}/s), {app.rows_out:,} out, "
        f"{app.waiting:,} waiting, p50 {p50} ms, p99 {p99} ms"
    )


def _tree(app: StatusTold, names: Mapping[str, str]) -> RenderableType:
    lines = tree_lines(app, names)
    return Group(Text(app.name, "bold"), *(lines or [Text("not placed yet", "yellow")]))


def tree_lines(app: StatusTold, names: Mapping[str, str]) -> list[Text]:
    """Return the tree of an app, a line per node, with what runs there."""
    lines: list[Text] = []
    for root in tree_of(app.parts):
        _add(lines, root, names, "", "")
    return lines


def _add(lines: list[Text], branch: Branch, names: Mapping[str, str], elbow: str, guide: str) -> None:
    name = names.get(branch.address, branch.address)
    runs = "" if branch.part is None else _runs(branch.part)
    lines.append(Text.assemble((elbow, "dim"), (name, "cyan"), f" {runs}", no_wrap=True, overflow="ellipsis"))
    for number, below in enumerate(branch.below):
        is_last = number == len(branch.below) - 1
        _add(lines, below, names, guide + ("└ " if is_last else "├ "), guide + ("  " if is_last else "│ "))


def _runs(part: PartLine) -> str:
    """Return in a few words what a node runs of an app."""
    chains = [instance.name.rpartition(" → ")[2] for instance in part.instances]
    return " ".join(["▸" for _ in part.sources] + chains + ["◂" for _ in part.sinks])
