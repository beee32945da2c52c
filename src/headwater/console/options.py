"""Options that several commands share. Fast to import, since a request to a node does not need Spark."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.model.errors import ConfigError
from headwater.model.time import SECOND, parse_duration
from headwater.runtime.logs import LogFormat

SparkOption = Annotated[bool, typer.Option("--no-spark", help="Run on threads of this process instead of Spark.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on the last line; progress to stderr.")]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Stop after so long: 30s, 2min.")]
MetricsOption = Annotated[
    int | None, typer.Option("--metrics", metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1.")
]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Waiting rows at which sources pause.", show_default="256MB")
]
DiskOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Waiting rows at which the oldest are shed.", show_default="2GB")
]
ConsumeOption = Annotated[
    str | None,
    typer.Option(metavar="RULE", help="Rows a turn takes: adaptive, all, half or a number.", show_default="adaptive"),
]
PolicyOption = Annotated[
    str | None, typer.Option(metavar="POLICY", help="Which queue runs next.", show_default="longest-queue")
]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="How log lines are written.")]
LogFileOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Write the log to a file; from 10 MB on to a new one, keeping 3."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="An application's option; may be repeated."),
]
DiscardOption = Annotated[
    list[str] | None,
    typer.Option("--discard", metavar="NAME", help="With an upgrade, give up what is kept of this; may be repeated."),
]


def parse_limit(written: str | None) -> float | None:
    """Parse the time limit of a run, in seconds."""
    if written is None:
        return None
    limit_s = parse_duration(written) / SECOND
    if limit_s <= 0:
        raise ConfigError(f"--for {written} leaves no time to run; give at least 1s")
    return limit_s
