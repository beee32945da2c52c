"""The engine's end of a measurement: requests come in on standard input, answers leave on a pipe of their own.

A request is a line of JSON. The engine runs the application until its input ends. It says `flowing` when every copy has
given a result, and `drained` when all are out; only when it is told to go on does it write its results down, so that
the writing is no part of what is measured. Like `recording` this needs nothing but Python.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.rivals.recording import Recorder


@dataclass(frozen=True)
class Request:
    """Run copies of an application, each on its own port, until their inputs end."""

    contest: str
    ports: tuple[int, ...]  # where the lines of each copy come from
    spool: Path  # where results are written, a file for each recording
    whole: int  # so many results of each copy are kept from the start on,
    stride: int  # and then of so many the first
    settings: dict[str, Any]  # what the contest's input was made with
    tell_first: Callable[[int], None]  # to be called when a copy has given its first result

    def recorder(self, copy: int) -> Recorder:
        """Return a recorder for results of a copy."""
        return Recorder(self.whole, self.stride, lambda: self.tell_first(copy))


class Recording(Protocol):
    """The results of one copy, or of one of its sinks."""

    def write(self, path: Path) -> None:
        """Write them to a file."""
        ...


def serve(answers: int, run: Callable[[Request], Sequence[Recording]], roots: Sequence[int] = ()) -> None:
    """Answer requests until there are no more; `roots` are the engine's processes, if this one is none of them."""
    with os.fdopen(answers, "w", encoding="utf-8") as pipe:
        _answer(pipe, ready=list(roots) or [os.getpid()])
        for line in sys.stdin:
            request = _request(line, lambda: _answer(pipe, flowing=True))
            try:
                recordings = run(request)
                _answer(pipe, drained=len(recordings))
                sys.stdin.readline()
                for number, recording in enumerate(recordings):
                    recording.write(request.spool / f"{number}.json")
                _answer(pipe, written=len(recordings))
            except Exception as failure:  # whatever an engine raises is an answer too
                traceback.print_exc()
                _answer(pipe, failed=f"{type(failure).__name__}: {failure}"[:2_000])


def _request(line: str, tell_flowing: Callable[[], None]) -> Request:
    told = json.loads(line)
    missing, lock = set(range(len(told["ports"]))), threading.Lock()

    def tell_first(copy: int) -> None:
        with lock:
            if copy in missing:
                missing.remove(copy)
                if not missing:
                    tell_flowing()

    return Request(
        contest=told["contest"],
        ports=tuple(told["ports"]),
        spool=Path(told["spool"]),
        whole=told["whole"],
        stride=told["stride"],
        settings=told["settings"],
        tell_first=tell_first,
    )


def _answer(pipe: Any, **told: Any) -> None:
    pipe.write(json.dumps(told) + "\n")
    pipe.flush()
