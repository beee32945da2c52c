"""A cluster from Python: the same operations as the command line, against any node.

with Cluster("10.0.0.1:7100", certs="certs/me") as cluster:
    cluster.submit("flow.py")
    result = cluster.wait("rain")
    print(result.rows_out, result.is_balanced)
"""

import getpass
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from headwater.client.app_options import with_kept
from headwater.client.connection import NodeClient, connect
from headwater.client.flow_text import EndsText, FlowText, flow_texts, read_flow
from headwater.client.requests import (
    PATIENCE_S_MAX,
    REQUESTS,
    AppsTold,
    Drain,
    DrainTold,
    DrainWish,
    ExplainApp,
    ExplainTold,
    FlowTold,
    GetFlow,
    GetLogs,
    GetStatus,
    ListApps,
    ListNodes,
    LogsTold,
    NodesTold,
    StatusTold,
    StopApp,
    Stopped,
    Submit,
    Submitted,
    UpgradeApp,
    UpgradeTold,
)
from headwater.client.result import RunResult, result_in_cluster
from headwater.client.signing import Trust, signed, signed_wish
from headwater.dataflow.compile import compile_flow
from headwater.links.credentials import Credentials, insecure_user, load_credentials
from headwater.links.requests import RequestRefused
from headwater.loading.flow_file import load_flows
from headwater.model.errors import ConfigError, EngineError, HeadwaterError

LOOK_S: Final = 0.2  # between two polls while waiting
PATIENCE_S: Final = 120.0  # for the old version's rows to drain in an upgrade


def user_credentials(certs: str | Path | None, *, insecure: bool = False) -> Credentials:
    """Return a user's credentials: from a directory of certificates, or insecure ones for this machine."""
    if insecure == (certs is not None):
        raise ConfigError(
            "give either --certs DIR (or HEADWATER_CERTS) or, on this machine, --insecure (or HEADWATER_INSECURE)"
            f"{', and not both' if insecure else ''}"
        )
    return insecure_user(_name_here()) if certs is None else load_credentials(Path(certs))


def _name_here() -> str:
    """Return the name of this user; in a container the user is often a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13 a KeyError, since then an OSError
        return str(os.getuid())


class Cluster:
    """A connection to one node, which asks the others."""

    def __init__(self, to: str, *, certs: str | Path | None = None, insecure: bool = False) -> None:
        """Connect to a node."""
        self._credentials = user_credentials(certs, insecure=insecure)
        self._client: NodeClient = connect(to, self._credentials, REQUESTS)

    def submit(
        self,
        flow: str | Path,
        *,
        zone: str = "",
        at: Mapping[str, str] | None = None,
        ends: EndsText | None = None,
        settings: Sequence[str] = (),
        name: str | None = None,
        chaining: bool = True,
    ) -> list[Submitted]:
        """Submit the flows of a file, or an application by name; sources are read at the node asked, unless `at` says.

        Of several flows each gets only its own sources' places. Without `chaining` every operator runs by itself.
        """
        written = _written(flow)
        texts = flow_texts(written, ends, settings, name, chaining=chaining)
        if len(texts) == 1:
            return [self.submit_text(texts[0], zone=zone, at=at)]
        self._refuse_taken(written, {text.app for text in texts})
        sources = sources_by_flow(written, ends, settings) if at else {}
        return self._submit_all(texts, zone, places_by_flow(at or {}, sources))

    def _submit_all(self, texts: list[FlowText], zone: str, places: Mapping[str, Mapping[str, str]]) -> list[Submitted]:
        """Submit several flows; if one is refused, the error names those already submitted."""
        submitted: list[Submitted] = []
        for text in texts:
            try:
                submitted.append(self.submit_text(text, zone=zone, at=places.get(text.name)))
            except HeadwaterError as failure:
                if not submitted:
                    raise
                names = ", ".join(one.app for one in submitted)
                raise EngineError(
                    f"{failure}; submitted already, and still there: {names}; submit the others alone "
                    f"({text.written}:{text.name}), or stop these"
                ) from failure
        return submitted

    def _refuse_taken(self, flow: str, names: set[str]) -> None:
        """Refuse a file if one of its flows has the name of an app, before any flow is submitted."""
        taken = sorted(names & {app.name for app in self.apps().apps})
        if taken:
            raise ConfigError(
                f"{', '.join(taken)} of {flow} are apps already, so nothing is submitted; stop them first, or submit "
                f"one flow alone ({flow}:NAME)"
            )

    def submit_text(self, text: FlowText, *, zone: str = "", at: Mapping[str, str] | None = None) -> Submitted:
        """Submit one flow."""
        answer: Submitted = self._client.ask(Submit(self._signed(text), zone, dict(at or {})))
        return answer

    def _signed(self, text: FlowText) -> bytes:
        """Sign a flow: with certificates nodes run only signed ones."""
        return signed(text.encode(), self._credentials, _now_us())

    def apps(self) -> AppsTold:
        """Return all apps."""
        answer: AppsTold = self._client.ask(ListApps())
        return answer

    def nodes(self) -> NodesTold:
        """Return all nodes."""
        answer: NodesTold = self._client.ask(ListNodes())
        return answer

    def status(self, app: str) -> StatusTold:
        """Return how an app is, over all its nodes."""
        answer: StatusTold = self._client.ask(GetStatus(app))
        return answer

    def explain(self, app: str) -> ExplainTold:
        """Return what the flow of an app compiles to: operators, chains, sinks and routes."""
        answer: ExplainTold = self._client.ask(ExplainApp(app))
        return answer

    def stop(self, app: str) -> Stopped:
        """End an app, and delete its data on all nodes."""
        answer: Stopped = self._client.ask(StopApp(app))
        return answer

    def drain(self, node: str, *, cancel: bool = False) -> DrainTold:
        """Drain a node, and return what has yet to move; it has left once `nodes` does not list it.

        `cancel` revokes the drain; what has moved stays where it is.
        """
        answer: DrainTold = self._client.ask(Drain(node, DrainWish.STAY if cancel else DrainWish.LEAVE))
        return answer

    def leaving(self, node: str) -> DrainTold:
        """Return the progress of a drain, without changing anything."""
        answer: DrainTold = self._client.ask(Drain(node, DrainWish.TELL))
        return answer

    def upgrade(
        self,
        app: str,
        flow: str | Path,
        *,
        given_up: Sequence[str] = (),
        at: Mapping[str, str] | None = None,
        ends: EndsText | None = None,
        settings: Sequence[str] = (),
        keep_options: bool = True,
        patience_s: float = PATIENCE_S,
        only_check: bool = False,
    ) -> UpgradeTold:
        """Replace an app by another version of its flow, which keeps the state that it can; the answer says which.

        The old version first drains its rows, for at most `patience_s`; `upgraded` waits for the end. `only_check`
        changes nothing. Options given at the submission (`ends`, `settings`, chaining) are kept unless given here;
        without `keep_options` only those given here count.
        """
        if not 0 < patience_s <= PATIENCE_S_MAX:
            raise ConfigError(
                f"a patience of {patience_s:g} s is none; give more than 0 and at most {PATIENCE_S_MAX} s"
            )
        ends = ends or EndsText()
        if keep_options:
            texts = self._next_versions(app, _written(flow), ends, settings)
        else:
            texts = flow_texts(_written(flow), ends, settings)
        text = _version_of(app, texts)
        wanted = UpgradeApp(app, self._signed(text), tuple(given_up), dict(at or {}), patience_s, only_check)
        answer: UpgradeTold = self._client.ask(wanted)
        return answer

    def _next_versions(self, app: str, flow: str, ends: EndsText, settings: Sequence[str]) -> list[FlowText]:
        """Return the flows of a file, with the options given here and the others of the running version."""
        running = self._running(app)
        kept_ends, kept_settings = with_kept(running, ends, settings)
        try:
            return flow_texts(flow, kept_ends, kept_settings, chaining=running.chaining)
        except ConfigError as failure:
            if (kept_ends, kept_settings) == (ends, tuple(settings)):
                raise
            raise ConfigError(
                f"{failure}; {app} was told more at its submission, which an upgrade keeps: with --fresh-options only "
                "what you say now counts"
            ) from failure

    def _running(self, app: str) -> FlowText:
        """Return the flow that an app runs; its user's signature is checked, so a node cannot make up options."""
        told: FlowTold = self._client.ask(GetFlow(app, signed_wish(app, self._credentials, _now_us())))
        return read_flow(Trust(lambda: self._credentials).running(told.flow).flow)

    def upgraded(
        self,
        told: UpgradeTold,
        on_look: Callable[[StatusTold], None] = lambda status: None,
        *,
        still_s: float | None = None,
    ) -> StatusTold:
        """Wait until the next version of an app runs; raises EngineError if it fails, or the one before goes on.

        So it does when nothing has come of it for `still_s`; the upgrade itself goes on.
        """
        stillness = Stillness(still_s, time.monotonic)
        while True:
            status = self.status(told.app)
            on_look(status)
            if is_upgraded(told, status):
                return status
            if stillness.is_over((status.id, status.state, status.notes)):
                raise still_waiting(status, stillness)
            time.sleep(LOOK_S)

    def logs(self, lines: int = 50, node: str = "") -> LogsTold:
        """Return the last lines of the logs of all nodes, or of one."""
        answer: LogsTold = self._client.ask(GetLogs(lines, node))
        return answer

    def wait(
        self,
        app: str,
        timeout_s: float | None = None,
        on_look: Callable[[StatusTold], None] = lambda status: None,
        *,
        still_s: float | None = None,
    ) -> RunResult:
        """Wait until all sources of an app have ended and all its rows are out; raises if it fails or takes longer.

        Nodes that are away meanwhile are waited for, too. With `still_s` it also raises if the app has not run for so
        long, but waited for something. What is returned is what `headwater.run` returns.
        """
        return result_in_cluster(self.at_rest(app, timeout_s, on_look, still_s=still_s))

    def at_rest(
        self,
        app: str,
        timeout_s: float | None = None,
        on_look: Callable[[StatusTold], None] = lambda status: None,
        *,
        still_s: float | None = None,
    ) -> StatusTold:
        """Wait as `wait` does, and return the status as the app's owner tells it."""
        gives_up = math.inf if timeout_s is None else time.monotonic() + timeout_s
        stillness = Stillness(still_s, time.monotonic)
        before: StatusTold | None = None
        while True:
            is_over = time.monotonic() > gives_up
            try:
                status = self.status(app)
            except RequestRefused as refused:
                if is_over or not refused.may_pass or stillness.is_over("owner away"):
                    raise
                time.sleep(LOOK_S)
                continue
            on_look(status)
            if status.state == "failed":
                raise EngineError(f"{app} has failed, mend it and upgrade it, or stop it: {'; '.join(status.errors)}")
            if before is not None and is_at_rest(before, status):
                return status
            if stillness.is_over(object() if status.state == "running" else status.state):
                raise still_waiting(status, stillness)
            if is_over:
                raise EngineError(f"{app} is {status.state} after {timeout_s:g} s: {status.waiting} rows wait")
            before = status
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Stillness:
    """For how long nothing new was seen of what somebody waits for."""

    def __init__(self, limit_s: float | None, clock: Callable[[], float]) -> None:
        """Begin with nothing seen; without a limit it is never over."""
        self.limit_s = math.inf if limit_s is None else limit_s
        self._clock, self._since_s = clock, clock()
        self._seen: object = None

    def is_over(self, seen: object) -> bool:
        """Whether just this was seen for as long as the limit."""
        if seen != self._seen:
            self._seen, self._since_s = seen, self._clock()
        return self._clock() - self._since_s >= self.limit_s


def still_waiting(status: StatusTold, stillness: Stillness) -> EngineError:
    """Return what somebody is told who waits no longer."""
    causes = "; ".join((*status.errors, *status.notes, *(f"missing: {place}" for place in status.missing)))
    return EngineError(
        f"{status.name} is {status.state}, and nothing has come of it for {stillness.limit_s:g} s: "
        f"{causes or 'no node says why'}. It goes on without this command: `headwater status {status.name}` tells how "
        "it is, and --timeout how long to wait"
    )


def _written(flow: object) -> str:
    """Return the name of a file or application; a flow object, as `headwater.run` takes it, is refused."""
    if not isinstance(flow, str | Path):
        raise ConfigError(
            f"a cluster cannot be given a {type(flow).__name__}, since flows travel as text: give the file in which it "
            "is written, as 'flow.py' or 'flow.py:NAME', or an application's name"
        )
    return str(flow)


def _now_us() -> int:
    return time.time_ns() // 1_000


def sources_by_flow(flow: str, ends: EndsText | None, settings: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the sources of each flow of a file."""
    flows = load_flows(flow, (ends or EndsText()).ends(), settings)
    return {one.name: tuple(compile_flow(one).sources) for one in flows}


def places_by_flow(at: Mapping[str, str], sources: Mapping[str, Collection[str]]) -> dict[str, dict[str, str]]:
    """Return where the sources of each flow are read; raises ConfigError if no flow has a source of that name."""
    unknown = sorted(set(at).difference(*sources.values()))
    if unknown:
        known = "; ".join(f"{flow} has {', '.join(names)}" for flow, names in sources.items())
        raise ConfigError(f"no flow has a source {unknown[0]!r}, so nothing is submitted: {known}")
    return {flow: {name: at[name] for name in names if name in at} for flow, names in sources.items()}


def is_upgraded(told: UpgradeTold, status: StatusTold) -> bool:
    """Whether the next version of an app runs, or has run; raises EngineError if that will not be, or not be seen."""
    if status.id not in (told.id, told.successor):
        raise EngineError(
            f"version {told.version} of {told.app} is not there any more: somebody has upgraded it again, or stopped "
            f"it and submitted it anew; see `headwater status {told.app}`"
        )
    if status.id == told.id and status.state != "upgrading":
        raise EngineError(f"{told.app} was not upgraded: {'; '.join((*status.notes, *status.errors))}")
    if status.id == told.successor and status.state == "failed":
        raise EngineError(
            f"version {told.version} of {told.app} has failed, mend it and upgrade again: {'; '.join(status.errors)}"
        )
    return status.id == told.successor and status.state not in ("deploying", "troubled", "nodes away")


def is_at_rest(before: StatusTold, now: StatusTold) -> bool:
    """Whether all sources of an app have ended and its rows are out, judged by two successive statuses.

    One status is not a consistent snapshot of the nodes. Only if no counter has changed between two of them was no row
    on its way between nodes.
    """
    finished = before.state == now.state == "finished"
    return finished and before.activity == now.activity and now.is_balanced and not now.silent


def _version_of(app: str, texts: list[FlowText]) -> FlowText:
    """Return the next version of an app among the flows: the only one, or the one of its name."""
    name = app.partition("@")[0]
    found = texts if len(texts) == 1 else [text for text in texts if text.name == name]
    if not found:
        names = ", ".join(text.name for text in texts)
        raise ConfigError(f"which of the flows {names} is the next version of {app}? Say it as FLOW.py:NAME")
    return found[0]
