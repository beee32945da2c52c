"""The display of a run: a live table on a terminal, a plain line every other second elsewhere.

Both show the last few seconds, that is the present state; the summary shows the whole run.
"""

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headwater.console import wording
from headwater.console.figures import AppFigures, NodeFigures, OperatorFigures, between
from headwater.engine.status import AppState, Latency, NodeStatus
from headwater.model.quoting import plural

WINDOW_US: Final = 2_000_000  # long enough for steady figures, short enough to show a worker's death
PLAIN_LINE_S: Final = 2.0
REFRESHES_PER_S: Final = 4.0
NOTES_SHOWN: Final = 3

_STATE_STYLES: Final = {
    AppState.RUNNING: "cyan",
    AppState.FINISHED: "green",
    AppState.FAILED: "bold red",
    AppState.STOPPED: "yellow",
}
_PRESSURE_STYLES: Final = {"flowing": "green", "pausing": "yellow", "spilling": "yellow", "shedding": "bold red"}


class View(Protocol):
    """Displays a run."""

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

    def say(self, message: str) -> None:
        """Show a sentence that stays."""
        ...

    def show(self, status: NodeStatus) -> None:
        """Show the present state."""
        ...


class History:
    """The statuses of the last few seconds."""

    def __init__(self) -> None:
        self._statuses: deque[NodeStatus] = deque()

    def figures(self, now: NodeStatus) -> NodeFigures:
        """Add a status, and return the figures of the window that it ends."""
        self._statuses.append(now)
        while len(self._statuses) > 2 and now.at_us - self._statuses[1].at_us >= WINDOW_US:
            self._statuses.popleft()
        before = self._statuses[0]
        return between(before if before is not now else None, now)


class PlainView:
    """One line after another, without escape codes: for pipes, files and `--json`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._history = History()
        self._next_line = 0.0
        self._told: dict[tuple[str, str], str] = {}  # the latest of each app's operators

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def working(self, message: str) -> None:
        """Print what is being done."""
        self.say(message)

    def say(self, message: str) -> None:
        self._console.print(message, soft_wrap=True, markup=False)

    def show(self, status: NodeStatus) -> None:
        """Print a line for every app, but not too often."""
        figures = self._history.figures(status)
        for app in figures.apps:
            for one in app.operators:
                self._tell((app.now.name, one.now.name), one.now.told)
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + PLAIN_LINE_S
            for app in figures.apps:
                self.say(plain_line(figures, app))

    def _tell(self, who: tuple[str, str], told: str) -> None:
        """Print what a source or sink says, when it says something else than before."""
        if told and self._told.get(who) != told:
            self.say(f"{who[0]}: {who[1]}: {told}")
        self._told[who] = told


class LiveView:
    """A table that is drawn again and again in its place; sentences stay above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._history = History()
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_S, transient=True)

    def __enter__(self) -> Self:
        """Take the lower part of the screen."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def working(self, message: str) -> None:
        """Show a line that moves: what is waited for, and for how long."""
        self._live.update(Wait(message), refresh=True)

    def say(self, message: str) -> None:
        self._console.print(message, markup=False)

    def show(self, status: NodeStatus) -> None:
        self._live.update(live_table(self._history.figures(status)), refresh=True)


class Wait:
    """A line that moves while something takes its time; it is drawn anew by whoever shows it."""

    def __init__(self, message: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to wait."""
        self._message, self._clock = message, clock
        self._began_s = clock()
        self._spinner = Spinner("dots")

    def __rich__(self) -> RenderableType:
        """Return the line as it is now."""
        self._spinner.update(text=Text(f" {self._message} ... {self._clock() - self._began_s:.0f} s"))
        return self._spinner


def view_on(console: Console, *, plain: bool = False) -> View:
    """Return the view that suits the console."""
    return PlainView(console) if plain or not console.is_terminal else LiveView(console)


def plain_line(node: NodeFigures, app: AppFigures) -> str:
    """Return one app's figures and the node's in a line."""
    latency = app.latency
    return (
        f"{wording.duration(app.seconds)}  {app.now.name} {app.now.state}: "
        f"{app.now.rows_in:,} in ({wording.rate(app.in_per_s)}/s), {app.now.rows_out:,} out, {app.waiting:,} waiting, "
        f"p50 {wording.milliseconds(latency.p50)} ms, p99 {wording.milliseconds(latency.p99)} ms; "
        f"{node.now.workers - node.now.idle} of {plural(node.now.workers, 'worker')} busy, "
        f"{wording.rate(node.turns_per_s)} turns/s, {node.now.pressure}"
    )


def live_table(node: NodeFigures) -> RenderableType:
    """Return the whole picture: apps with their operators, the node, its notes."""
    parts: list[RenderableType] = []
    for app in node.apps:
        parts += [_app_line(app), _latency_line(app), operator_table(app.operators), *told_lines(app), Text()]
    return Group(*parts, *_node_lines(node))


def told_lines(app: AppFigures) -> list[Text]:
    """Return a line for each source and sink that has something to say."""
    return [Text(f"{one.now.name}: {one.now.told}", "yellow") for one in app.operators if one.now.told]


def _app_line(app: AppFigures) -> Text:
    return Text.assemble(
        (app.now.name, "bold"),
        "  ",
        (app.now.state.value, _STATE_STYLES[app.now.state]),
        f"  {wording.duration(app.seconds)}   ",
        f"{app.now.rows_in:,} in ({wording.rate(app.in_per_s)}/s)   {app.now.rows_out:,} out",
    )


def _latency_line(app: AppFigures) -> Text:
    return Text.assemble(
        ("latency ms p50/p95/p99  now ", "dim"),
        _percentiles(app.now.recent),
        (f"   in all {_percentiles(app.now.latency)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _percentiles(latency: Latency) -> str:
    return "/".join(wording.milliseconds(value) for value in (latency.p50, latency.p95, latency.p99))


def operator_table(operators: tuple[OperatorFigures, ...]) -> Table:
    """Return one line for each source, chain and sink; it fits into 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False, expand=False)
    table.add_column("operator", overflow="fold", ratio=1)
    for heading in ("in/s", "out/s", "queue", "util", "T_Q", "T_S", "T_C"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=5)
    table.add_column("note", no_wrap=True, style="yellow")
    for one in operators:
        table.add_row(
            _name(one),
            wording.rate(one.in_per_s),
            wording.rate(one.out_per_s),
            "" if one.now.kind == "source" else wording.count(one.now.waiting),
            _utilisation(one.utilisation),
            *(_time(value) for value in (one.queue_ms, one.schedule_ms, one.compute_ms)),
            Text(one.now.note),
        )
    return table


def _name(one: OperatorFigures) -> Text:
    marks = {"source": "▸ ", "sink": "◂ "}
    instances = f" ×{one.now.instances}" if one.now.instances > 1 else ""
    return Text.assemble((marks.get(one.now.kind, "  "), "dim"), one.now.name, (instances, "cyan"))


def _utilisation(value: float | None) -> Text:
    if value is None:
        return Text()
    style = "bold red" if value > 0.9 else "yellow" if value > 0.7 else ""
    return Text(wording.share(value), style)


def _time(value: float | None) -> str:
    return "" if value is None else wording.milliseconds(value)


def _node_lines(node: NodeFigures) -> list[Text]:
    now = node.now
    spares = f" ({now.spares} spare)" if now.spares else ""
    lost = f", {now.workers_lost} lost" if now.workers_lost else ""
    budgets = f"{wording.size(now.memory_bytes)} memory, {wording.size(now.disk_bytes)} disk"
    first = Text.assemble(
        ("node", "bold"),
        f"  {now.workers - now.idle} busy, {now.idle} idle of {plural(now.workers, 'worker')}{spares}",
        (lost, "yellow"),
        f"   {wording.rate(node.turns_per_s)} turns/s   {now.policy}",
    )
    second = Text.assemble(
        ("      "),
        (now.pressure, _PRESSURE_STYLES.get(now.pressure, "")),
        f"   {wording.size(now.bytes_held)} waiting of {budgets}   epoch {now.epoch}",
    )
    return [first, second, *(Text(f"      {note}", "yellow") for note in now.notes[-NOTES_SHOWN:])]
