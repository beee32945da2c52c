"""The consoles that commands write to.

Spark's launcher inherits our standard output and error, so the runtime redirects both to a log file while Spark starts.
A console writes to a duplicate made before that.
"""

import codecs
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from headwater.runtime.logs import written_out


class Screen(Console):
    """A console that prints no control characters of foreign texts: names, lines and errors."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return what is drawn, with unprintable characters escaped."""
        for one in super().render(renderable, options):
            yield one if one.control else one._replace(text=written_out(one.text))


def screen(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error that works even while Spark starts."""
    return Screen(file=_duplicate(sys.stderr if stderr else sys.stdout), highlight=False)


def _duplicate(stream: TextIO) -> TextIO:
    try:
        descriptor = os.dup(stream.fileno())
    except (io.UnsupportedOperation, OSError, ValueError):  # a stream of a test, or none at all
        return stream
    stream.flush()
    return os.fdopen(descriptor, "w", buffering=1, encoding=stream.encoding, errors="replace")


def tell(sentence: str) -> None:
    """Print a sentence on standard output."""
    print(written_out(sentence), flush=True)


def fail(sentence: str) -> None:
    """Print an error on standard error."""
    print(written_out(f"error: {sentence}"), file=sys.stderr, flush=True)


_objects_go_to: list[TextIO] = []  # the real standard output, while that is reserved for objects


@contextmanager
def objects_alone() -> Iterator[None]:
    """Reserve standard output for objects: other output, as of a flow's code, goes to standard error."""
    _objects_go_to.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _objects_go_to.pop()


def print_object(told: Any) -> None:
    """Print one JSON object on a line of standard output, in ASCII if that is not UTF-8."""
    output = _objects_go_to[-1] if _objects_go_to else sys.stdout
    is_utf8 = output.encoding is None or codecs.lookup(output.encoding).name == "utf-8"
    text = msgspec.json.encode(told).decode() if is_utf8 else json.dumps(msgspec.to_builtins(told))
    print(text, file=output, flush=True)
