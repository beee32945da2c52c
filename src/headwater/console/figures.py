"""Rates and means from a node's sums: the difference of two statuses, divided by the time between them.

Utilisation is EdgeWise's rho_w = 1 - T_emptyQ / T_w (equation 11): the share of the window in which an instance had
rows waiting or running. T_Q, T_S and T_C are means per row: of the wait in the queue, of scheduling, of computing.
Pure arithmetic; the live table, the plain lines and `--json` all use these figures.
"""

from dataclasses import dataclass

from headwater.engine.status import AppState, AppStatus, Latency, NodeStatus, OperatorStatus


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """One source, chain or sink over a window."""

    now: OperatorStatus
    in_per_s: float
    out_per_s: float
    utilisation: float | None  # None for a source, which has no queue
    queue_ms: float | None  # None where no row passed in the window
    schedule_ms: float | None
    compute_ms: float | None


@dataclass(frozen=True, slots=True)
class AppFigures:
    """One app over a window."""

    now: AppStatus
    seconds: float  # since the app began, up to its end
    in_per_s: float
    out_per_s: float
    operators: tuple[OperatorFigures, ...]

    @property
    def waiting(self) -> int:
        """Rows in all queues."""
        return sum(one.now.waiting for one in self.operators)

    @property
    def latency(self) -> Latency:
        """The latency of the last few seconds or, without rows in these, since the start."""
        return self.now.recent if self.now.recent.p50 is not None else self.now.latency


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """One node over a window."""

    now: NodeStatus
    turns_per_s: float
    apps: tuple[AppFigures, ...]


def between(before: NodeStatus | None, now: NodeStatus) -> NodeFigures:
    """Return the figures between two statuses; without the first, since each app began."""
    earlier = {} if before is None else {app.name: app for app in before.apps}
    window_us = 0 if before is None else now.at_us - before.at_us
    apps = tuple(_app(earlier.get(app.name), app, now.at_us, window_us) for app in now.apps)
    longest_us = max((now.at_us - app.started_us for app in now.apps), default=0) if before is None else window_us
    turns = now.turns - (0 if before is None else before.turns)
    return NodeFigures(now, _per_second(turns, longest_us), apps)


def _app(before: AppStatus | None, now: AppStatus, at_us: int, window_us: int) -> AppFigures:
    end_us = now.ended_us if now.ended_us is not None else at_us
    lifetime_us = max(1, end_us - now.started_us)
    if before is None or before.started_us != now.started_us:
        known: dict[tuple[str, str], OperatorStatus] = {}
        passed_us, watched_us, rows_in, rows_out = lifetime_us, at_us - now.started_us, 0, 0
    else:
        known = {(one.kind, one.name): one for one in before.operators}
        passed_us, watched_us, rows_in, rows_out = window_us, window_us, before.rows_in, before.rows_out
    return AppFigures(
        now=now,
        seconds=lifetime_us / 1e6,
        in_per_s=_per_second(now.rows_in - rows_in, passed_us),
        out_per_s=_per_second(now.rows_out - rows_out, passed_us),
        operators=tuple(
            _operator(known.get((one.kind, one.name)), one, passed_us, watched_us) for one in now.operators
        ),
    )


def _operator(before: OperatorStatus | None, now: OperatorStatus, passed_us: int, watched_us: int) -> OperatorFigures:
    was = before if before is not None else _nothing_yet(now)
    rows = now.rows_in - was.rows_in
    return OperatorFigures(
        now=now,
        in_per_s=_per_second(rows, passed_us),
        out_per_s=_per_second(now.rows_out - was.rows_out, passed_us),
        utilisation=_utilisation(now, now.empty_us - was.empty_us, watched_us),
        queue_ms=_mean_ms(now, now.queue_us - was.queue_us, rows),
        schedule_ms=_mean_ms(now, now.schedule_us - was.schedule_us, rows),
        compute_ms=_mean_ms(now, now.compute_us - was.compute_us, rows),
    )


def _nothing_yet(now: OperatorStatus) -> OperatorStatus:
    return OperatorStatus(now.name, now.kind, now.stage, now.instances, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def _utilisation(now: OperatorStatus, empty_us: int, window_us: int) -> float | None:
    if now.kind == "source" or window_us <= 0 or now.instances == 0:
        return None
    return min(1.0, max(0.0, 1 - empty_us / (window_us * now.instances)))


def _mean_ms(now: OperatorStatus, total_us: int, rows: int) -> float | None:
    """Return a mean; only chains have turns, and so these times."""
    return total_us / rows / 1_000 if now.kind == "chain" and rows > 0 else None


def _per_second(count: int, window_us: int) -> float:
    return max(0, count) * 1e6 / window_us if window_us > 0 else 0.0


def failed(status: NodeStatus) -> list[AppStatus]:
    """Return the apps that failed."""
    return [app for app in status.apps if app.state is AppState.FAILED]
