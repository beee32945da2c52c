"""Where the console writes.

Spark's launcher inherits our standard output and error, so the runtime points both at a log file while Spark starts.
What people watch is written to a duplicate made before that.
"""

import io
import os
import sys
from typing import Any, TextIO

import msgspec
from rich.console import Console


def screen(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error that goes on working while Spark starts."""
    return Console(file=_duplicate(sys.stderr if stderr else sys.stdout), highlight=False)


def _duplicate(stream: TextIO) -> TextIO:
    try:
        descriptor = os.dup(stream.fileno())
    except (io.UnsupportedOperation, OSError, ValueError):  # a stream of a test, or none at all
        return stream
    stream.flush()
    return os.fdopen(descriptor, "w", buffering=1, encoding=stream.encoding, errors="replace")


def fail(sentence: str) -> None:
    """Tell the user on standard error what went wrong."""
    print(f"error: {sentence}", file=sys.stderr, flush=True)


def print_object(told: Any) -> None:
    """Print one JSON object on a line of standard output."""
    print(msgspec.json.encode(told).decode(), flush=True)
