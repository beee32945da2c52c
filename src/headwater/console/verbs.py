"""Users' requests to any node of a cluster: `submit`, `status`, `nodes`, `upgrade`, `stop`, `drain`, `logs`."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from headwater.client.cluster import Cluster, Stillness
from headwater.client.flow_text import EndsText
from headwater.client.requests import LOG_LINES_MAX, AppsTold, DrainTold, StatusTold, Submitted, UpgradeTold
from headwater.console.options import DiscardOption, SetOption
from headwater.console.screen import print_object, screen, tell
from headwater.console.showing import show_apps, show_logs, show_nodes, show_status
from headwater.model.errors import ConfigError, EngineError, HeadwaterError
from headwater.model.time import SECOND, parse_duration

TO: Final = "HEADWATER_TO"
ToOption = Annotated[str, typer.Option("--to", metavar="HOST:PORT", envvar=TO, help="A node of the cluster.")]


# The command line takes precedence over the environment, even for the other one of two options that exclude each other.
# Typer reads it first, so its source is known when that of the environment is read.


def _certs_unless_insecure(context: typer.Context, value: Path | None) -> Path | None:
    return None if _is_said(context, "insecure") and not _is_said(context, "certs") else value


def _insecure_unless_certs(context: typer.Context, value: bool) -> bool:
    return value and (_is_said(context, "insecure") or not _is_said(context, "certs"))


def _is_said(context: typer.Context, option: str) -> bool:
    """Whether an option is on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


CertsOption = Annotated[
    Path | None,
    typer.Option(
        "--certs",
        metavar="DIR",
        envvar="HEADWATER_CERTS",
        help="What `headwater certs user` made.",
        callback=_certs_unless_insecure,
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="HEADWATER_INSECURE",
        help="Without certificates, on this machine only.",
        callback=_insecure_unless_certs,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AtOption = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="SOURCE=NODE", help="Where a source is read; may be repeated.", show_default="--to"),
]
RateOption = Annotated[float | None, typer.Option("--rate", help="Rows a second into an application.")]
RowsOption = Annotated[int | None, typer.Option("--rows", help="Make so many rows, then end.")]
DataOption = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="An application's real data, on the nodes.")
]
LoopOption = Annotated[bool, typer.Option("--loop", help="Start real data over when it ends.")]
SourceOption = Annotated[
    str | None, typer.Option("--source", metavar="URL|FILE", help="Where an application's rows come from.")
]
SinkOption = Annotated[
    str | None, typer.Option("--sink", metavar="URL|FILE", help="Where an application's results go.")
]
STILL: Final = "10min"
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Wait no longer once nothing has come of it for so long.")
]
HERE = "127.0.0.1:7100"
TRIED: Final = " (tried "  # the part of a trouble's text that changes every second
SILENT_LOOKS: Final = 10  # for which a node that leaves may be silent: the others hear of it one by one


def submit(
    flow: Annotated[
        str, typer.Argument(metavar="FLOW.py[:NAME]|APP", help="A file with flows, or an application by name.")
    ],
    to: ToOption = HERE,
    name: Annotated[str | None, typer.Option(help="Of the app.", show_default="that of the flow")] = None,
    zone: Annotated[str, typer.Option(help="Of the node that answers for it.", show_default="that of --to")] = "",
    at: AtOption = None,
    rate: RateOption = None,
    rows: RowsOption = None,
    data: DataOption = None,
    loop: LoopOption = False,
    source: SourceOption = None,
    sink: SinkOption = None,
    settings: SetOption = None,
    no_chaining: Annotated[bool, typer.Option("--no-chaining", help="Run every operator by itself.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and tell how it went.")] = False,
    timeout: TimeoutOption = STILL,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Have a cluster run a file's flows, or an application."""
    ends = EndsText(rate=rate, rows=rows, data=data, loop=loop, source=source, sink=sink)
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        submitted = cluster.submit(
            flow,
            zone=zone,
            at=_places(at or []),
            ends=ends,
            settings=settings or (),
            name=name,
            chaining=not no_chaining,
        )
        if wait:
            _wait_for_all(cluster, submitted, _seconds(timeout), as_json=as_json)
            return
    if as_json:
        print_object({"submitted": submitted})
        return
    for one in submitted:
        tell(f"{one.app} is being deployed; {one.owner} answers for it (headwater status {one.app} --to {to})")


def _wait_for_all(cluster: Cluster, submitted: list[Submitted], still_s: float, *, as_json: bool) -> None:
    """Tell of each app how it is when it has ended; in JSON that is one object, however many there are."""
    told = []
    console = screen(stderr=True)
    for one in submitted:
        words = f"waiting until all rows of {one.app} are out; Ctrl-C ends the waiting, and not the app"
        console.print(words, soft_wrap=True, markup=False)
        told.append(cluster.at_rest(one.app, on_look=_Troubles(console).look, still_s=still_s))
        if not as_json:
            show_status(screen(), told[-1])
    if as_json:
        print_object(told[0] if len(told) == 1 else {"apps": told})


def _seconds(written: str) -> float:
    return parse_duration(written) / SECOND


def _cause(error: str) -> str:
    return error.partition(TRIED)[0]


class _Troubles:
    """Prints what keeps an app from running, whenever that changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: list[str] = []

    def look(self, status: StatusTold) -> None:
        if status.state == "failed":
            return  # whoever waits is told why, and waits no more
        causes = [_cause(error) for error in status.errors]
        if causes != self._said:
            self._said = causes
            words = f"{status.name} is {status.state}{': ' * bool(causes)}{'; '.join(status.errors)}"
            self._console.print(words, soft_wrap=True, markup=False)


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
        print_object(told)
    else:
        show_status(screen(), told)


def show_apps_told(told: AppsTold, *, as_json: bool) -> None:
    """Print the apps of a cluster."""
    if as_json:
        print_object(told)
    else:
        show_apps(screen(), told)


def nodes(
    to: ToOption = HERE, certs: CertsOption = None, insecure: InsecureOption = False, as_json: JsonOption = False
) -> None:
    """List the nodes of a cluster."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.nodes()
    if as_json:
        print_object(told)
    else:
        show_nodes(screen(), told)


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
        print_object(told)
    else:
        tell(f"{told.app} has ended")


def drain(
    node: Annotated[str, typer.Argument(help="A node's address, or the first digits of its id, at least 4.")],
    to: ToOption = HERE,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is gone.")] = True,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Let it stay after all; what has moved stays where it is.")
    ] = False,
    timeout: TimeoutOption = STILL,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a node leave for good: what runs there moves to others with its state, and then it ends."""
    say: Callable[[str], None] = _say_nothing if as_json else tell
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.drain(node, cancel=cancel)
        say(f"{told.node} stays" if cancel else f"{told.node} is leaving: {_left(told)}")
        if wait and not cancel:
            told = _until_gone(cluster, told, say, Stillness(_seconds(timeout), time.monotonic))
            say(f"{told.node} has left, and nothing of any app is left there")
    if as_json:
        print_object(told)


def _say_nothing(words: str) -> None:
    pass


def _until_gone(cluster: Cluster, told: DrainTold, say: Callable[[str], None], stillness: Stillness) -> DrainTold:
    """Look at a node until it has left, and say how far it is; returns what it told last."""
    looks_left = SILENT_LOOKS
    while _is_there(cluster, told.node):
        try:
            news = cluster.leaving(told.node)
            looks_left = SILENT_LOOKS
        except HeadwaterError as failure:  # it may be just leaving
            news, looks_left = told, looks_left - 1
            if not looks_left:
                raise EngineError(f"{failure}; it goes on leaving when it is back") from failure
        if not news.is_leaving:
            raise EngineError(
                f"{told.node} does not leave: somebody lets it stay, or it has left and was started again"
            )
        if (news.left, _cause(news.waits_for)) != (told.left, _cause(told.waits_for)):
            say(f"{told.node}: {_left(news)}")
        told = news
        if stillness.is_over(news.left):
            raise EngineError(
                f"{told.node} has not got on for {stillness.limit_s:g} s: {_left(told)}. It goes on leaving "
                "without this command, which says more when it is run again; with --cancel the node stays"
            )
        time.sleep(1)
    return told


def _is_there(cluster: Cluster, address: str) -> bool:
    told = cluster.nodes()
    return address in told.silent or any(node.address == address for node in told.nodes)


def _left(told: DrainTold) -> str:
    if told.left:
        some = f"{', '.join(told.left[:5])}{' ...' * (len(told.left) > 5)}"
        why = f"; {told.waits_for}" if told.waits_for else ""
        return f"{len(told.left)} instances have yet to move ({some}){why}"
    return told.waits_for or "nothing runs there any more"


def upgrade(
    app: Annotated[str, typer.Argument(help="An app's name or id.")],
    flow: Annotated[str, typer.Argument(metavar="FLOW.py[:NAME]|APP", help="The file with its next version.")],
    to: ToOption = HERE,
    discard: DiscardOption = None,
    at: AtOption = None,
    rate: RateOption = None,
    rows: RowsOption = None,
    data: DataOption = None,
    loop: LoopOption = False,
    source: SourceOption = None,
    sink: SinkOption = None,
    settings: SetOption = None,
    fresh_options: Annotated[
        bool, typer.Option("--fresh-options", help="Let nothing stay that is not said again of these options.")
    ] = False,
    patience: Annotated[
        str, typer.Option(metavar="TIME", help="For its rows to be through; after that it goes on as it is.")
    ] = "2min",
    check: Annotated[bool, typer.Option("--check", help="Only say what would be kept.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the next version runs.")] = False,
    timeout: TimeoutOption = STILL,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replace a running app by another version of its flow, which goes on where this one stands.

    What an application was told and is not said anew (--rate, --rows, --data, --loop, --source, --sink, --set) stays.
    """
    ends = EndsText(rate=rate, rows=rows, data=data, loop=loop, source=source, sink=sink)
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.upgrade(
            app,
            flow,
            given_up=discard or (),
            at=_places(at or []),
            ends=ends,
            settings=settings or (),
            keep_options=not fresh_options,
            patience_s=_seconds(patience),
            only_check=check,
        )
        say = screen(stderr=as_json)
        say.print(_upgrade_words(told, only_checked=check), soft_wrap=True, markup=False)
        if not check and not no_wait:
            still_s = _seconds(patience) + _seconds(timeout)  # while its rows run out the cluster looks at the time
            status = cluster.upgraded(told, _Progress(say).look, still_s=still_s)
            say.print(f"version {told.version} of {told.app} is {status.state}", soft_wrap=True, markup=False)
    if as_json:
        print_object(told)


def _upgrade_words(told: UpgradeTold, *, only_checked: bool) -> str:
    """Return what becomes of the state of an app."""
    named = (
        ("goes on", told.kept),
        ("begins with nothing", told.begun),
        ("is given up", told.given_up),
        ("stays as it was told", told.options),
    )
    words = "; ".join(f"{what}: {', '.join(names)}" for what, names in named if names)
    rows = ", and it takes the rows that wait, which this one cannot let through" if told.takes_rows else ""
    could = "could take" if only_checked else "takes"
    return f"version {told.version} of {told.app} {could} its place{rows}; {words}"


class _Progress:
    """Prints the progress of an upgrade, whenever that changes."""

    def __init__(self, console: Console) -> None:
        self._console, self._said = console, ""

    def look(self, status: StatusTold) -> None:
        note = status.notes[0] if status.notes else ""
        is_under_way = status.state == "upgrading"
        told = note if is_under_way else f"version {status.version} is {status.state}"
        news = "; ".join((told, *map(_cause, status.errors)))
        if news != self._said:
            self._said = news
            why = f": {'; '.join(status.errors)}" if status.errors else ""
            self._console.print(f"{told}{why}", soft_wrap=True, markup=False)


def logs(
    to: ToOption = HERE,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=LOG_LINES_MAX, help="How many.")] = 50,
    node: Annotated[str, typer.Option(metavar="NODE", help="Of this node only.", show_default="all")] = "",
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the last lines of the nodes' logs."""
    with Cluster(to, certs=certs, insecure=insecure) as cluster:
        told = cluster.logs(lines, node)
    if as_json:
        print_object(told)
    else:
        show_logs(screen(), told)
