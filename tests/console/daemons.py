"""Commands that run until they are told to stop, as processes of their own: what they say, and how they end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

END_S: Final = 120


class Daemon:
    """`headwater node` or `headwater cluster`, and what it has said."""

    def __init__(self, *words: object, temporary: Path | None = None) -> None:
        """Start it; `temporary` is where it makes directories of its own."""
        self.words = [str(word) for word in words]
        place = {} if temporary is None else {"TMPDIR": str(temporary)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", *self.words, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **place},
        )
        self.said: list[dict[str, Any]] = []

    def until(self, event: str) -> dict[str, Any]:
        """Read what it says until it says this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if self.said[-1]["event"].startswith(event):
                return self.said[-1]
        raise AssertionError(f"{self.words} ended without {event!r}: {self.process.communicate()[1]}")

    def all_that(self, event: str, fact: str) -> list[Any]:
        """Return a fact of everything of this kind that it has said."""
        return [said[fact] for said in self.said if said["event"] == event]

    def kill(self) -> None:
        """End it with no chance to say anything."""
        self.process.kill()
        self.process.wait(END_S)

    def stop(self) -> tuple[int, str]:
        """Ask it to stop, and return its exit code and what it wrote to standard error."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait until it and all that share its standard error have ended; return its exit code and what they wrote."""
        _, told = self.process.communicate(timeout=END_S)
        return self.process.returncode, told

    def __enter__(self) -> Self:
        """End it at the end of the block, whatever happens."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=END_S)
