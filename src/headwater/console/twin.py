"""`headwater run --engine structured`: a flow as a stock Structured Streaming query."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.console import wording
from headwater.console.interrupts import INTERRUPTED_EXIT, StopWish, stop_wish
from headwater.console.screen import print_object, screen
from headwater.dataflow.stream import Flow
from headwater.model.errors import ConfigError
from headwater.twin.query import QueryEnding, StructuredStatus, check_expressible, run_structured

TELL_S: Final = 2.0  # between two lines of progress
LOOK_S: Final = 0.1  # the delay with which a request to stop is noticed


def run_twin(
    flows: list[Flow], *, master: str | None, directory: Path | None, limit_s: float | None, as_json: bool
) -> None:
    """Run one flow on Spark alone, tell how it goes, and end the command as the run ended."""
    if len(flows) != 1:
        names = ", ".join(flow.name for flow in flows)
        raise ConfigError(
            f"Structured Streaming runs one flow at a time, and the file has {names}: pick one, FLOW.py:NAME"
        )
    console = screen(stderr=as_json)
    with stop_wish() as wish, _granted(wish) as stop:
        check_expressible(flows[0])
        console.print(f"starting Spark ({master or 'on this machine'})", soft_wrap=True, markup=False)
        progress = _Progress(console, wish)
        status = run_structured(
            flows[0], master=master, directory=directory, limit_s=limit_s, stop=stop, on_progress=progress.show
        )
    if as_json:
        print_object(_told(status, master))
    else:
        _print_summary(console, status)
    raise typer.Exit(INTERRUPTED_EXIT if status.ending is QueryEnding.STOPPED else 0)


class _Progress:
    """Prints the rows read and written from time to time."""

    def __init__(self, console: Console, wish: StopWish) -> None:
        self._console, self._wish = console, wish
        self._told_at = 0.0
        self._listening = False

    def show(self, status: StructuredStatus) -> None:
        if not self._listening:  # Spark installs its own handler for Ctrl-C when it starts
            self._listening = True
            self._wish.listen()
        if time.monotonic() - self._told_at >= TELL_S:
            self._told_at = time.monotonic()
            rows_in, rows_out = sum(status.rows_in.values()), sum(status.rows_out.values())
            batches = sum(status.micro_batches.values())
            counted = f"{rows_in:>11,} rows in  {rows_out:>11,} rows out  {batches:>6,} micro-batches"
            self._console.print(f"{status.seconds:6.1f} s  {counted}", soft_wrap=True, markup=False)


@contextmanager
def _granted(wish: StopWish) -> Iterator[threading.Event]:
    """Return an event that is set when a signal asks to stop."""
    stop, over = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if wish.given:
                stop.set()
                return

    thread = threading.Thread(target=watch, name="stop-wish", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        over.set()
        thread.join()


def _told(status: StructuredStatus, master: str | None) -> dict[str, Any]:
    return {
        "app": status.flow,
        "engine": "structured",
        "master": master or "local",
        "state": "stopped" if status.ending is QueryEnding.STOPPED else "finished",
        "ending": status.ending,
        "seconds": round(status.seconds, 3),
        "rows_in": sum(status.rows_in.values()),
        "rows_out": sum(status.rows_out.values()),
        "sources": dict(status.rows_in),
        "sinks": dict(status.rows_out),
        "micro_batches": dict(status.micro_batches),
    }


def _print_summary(console: Console, status: StructuredStatus) -> None:
    how = {QueryEnding.FINISHED: "finished in", QueryEnding.TIME_UP: "stopped as asked after"}
    ended = how.get(status.ending, "stopped by you after") if status.ending is not None else "ended after"
    console.print()
    console.print(
        Text.assemble((status.flow, "bold"), f" {ended} {wording.duration(status.seconds)} on Structured Streaming")
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in ("name", "kind", "rows", "micro-batches"):
        table.add_column(heading, justify="left" if heading in ("name", "kind") else "right")
    _add_rows(table, status.rows_in, "source", {})
    _add_rows(table, status.rows_out, "sink", status.micro_batches)
    console.print(table)


def _add_rows(table: Table, rows: Mapping[str, int], kind: str, batches: Mapping[str, int]) -> None:
    for name, count in rows.items():
        table.add_row(name, kind, f"{count:,}", f"{batches[name]:,}" if name in batches else "")
