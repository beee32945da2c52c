"""Running flows on an embedded node until they end, the time is up, or a signal asks to stop."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headwater.console.interrupts import INTERRUPTED_EXIT, StopWish, stop_wish
from headwater.console.live import View
from headwater.dataflow.stream import Flow
from headwater.engine.status import AppState, NodeStatus
from headwater.runtime.app import NodeApp
from headwater.runtime.metrics import serve_metrics
from headwater.runtime.node import Node
from headwater.runtime.registry import Upgrade
from headwater.workers.config import NodeConfig

log = logging.getLogger(__name__)

LOOK_S: Final = 0.1  # the delay with which an ended flow or a request to stop is noticed
SHOW_S: Final = 0.5  # between two updates: a person reads no faster, and a status takes some of the scheduler's time

DRAIN_S: Final = 5.0  # for the rows under way when the time is up; the rest stays in the store


class RunEnding(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    TIME_UP = "time-up"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run."""

    ending: RunEnding
    status: NodeStatus  # with ledgers

    @property
    def exit_code(self) -> int:
        """0 for success, 1 if a flow failed, 130 after Ctrl-C."""
        if any(app.state is AppState.FAILED for app in self.status.apps):
            return 1
        return INTERRUPTED_EXIT if self.ending is RunEnding.INTERRUPTED else 0


def run_flows(
    flows: Sequence[Flow],
    config: NodeConfig,
    view: View,
    *,
    limit_s: float | None = None,
    metrics_port: int | None = None,
    upgrade: Upgrade | None = None,
    reads: bool = True,
    on_look: Callable[[Node], None] = lambda node: None,
) -> RunOutcome:
    """Run the flows together on one node, and return the result; `on_look` is called ten times a second.

    With an upgrade they replace other versions; flows that do not read only process their queued rows, and end.
    """
    with ExitStack() as closing:
        wish = closing.enter_context(stop_wish())
        closing.enter_context(view)
        node = closing.enter_context(_started(config, view))
        if metrics_port is not None:
            server = serve_metrics(node, metrics_port)
            closing.callback(server.close)
            view.say(f"metrics: {server.url}")
        wish.listen()
        apps = [node.deploy(flow, upgrade=upgrade, reads=reads) for flow in flows]
        ending = _watch(node, apps, view, wish, limit_s, on_look)
        if ending is RunEnding.TIME_UP:
            view.working("letting the last rows through")
            _drain(node, apps)
        for app in apps:
            node.halt(app)  # does nothing to an app that has ended
        outcome = RunOutcome(ending, node.status(ledgers=True))
        view.working("stopping")
        return outcome


def _drain(node: Node, apps: Sequence[NodeApp]) -> None:
    ends = time.monotonic() + DRAIN_S
    for app in apps:
        node.drain(app, max(0.0, ends - time.monotonic()))


@contextmanager
def _started(config: NodeConfig, view: View) -> Iterator[Node]:
    """Start a node, and stop it in any case: also one that was interrupted while it started."""

    def on_event(message: str) -> None:
        log.info("%s", message)
        view.working(message)

    node = Node(config, on_event=on_event)
    try:
        node.start()
        yield node
    finally:
        node.stop()


def _watch(
    node: Node,
    apps: Sequence[NodeApp],
    view: View,
    wish: StopWish,
    limit_s: float | None,
    on_look: Callable[[Node], None],
) -> RunEnding:
    began = time.monotonic()
    show_at = began
    while running := [app for app in apps if not app.done.is_set()]:
        now = time.monotonic()
        if wish.given:
            return RunEnding.INTERRUPTED
        if limit_s is not None and now - began >= limit_s:
            return RunEnding.TIME_UP
        if now >= show_at:
            show_at = now + SHOW_S
            view.show(node.status())
        on_look(node)
        left_s = LOOK_S if limit_s is None else min(LOOK_S, max(0.0, limit_s - (now - began)))
        running[0].done.wait(left_s)
    return RunEnding.FINISHED
