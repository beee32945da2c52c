"""The environments that peers live in: made once with pip, and kept.

Each has its own, since what one needs another forbids. They lie where `HEADWATER_BENCH_ENVS` says, else in the user's
cache; one that was left unfinished, or that was made of other requirements, is made anew.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Tell = Callable[[str], None]

MAKE_S: Final = 900.0
MADE: Final = "made-of.txt"
LIBRARIES: Final = ("orjson>=3.10,<4", "rbloom>=1.5,<2", "datasketches>=5.1,<6")  # what RIoTBench's operators use


class Unavailable(Exception):
    """A peer cannot be had on this machine, for this reason."""


@dataclass(frozen=True)
class Peer:
    """An engine from PyPI."""

    name: str
    version: str
    package: str

    @property
    def requirements(self) -> tuple[str, ...]:
        """What is installed."""
        return (f"{self.package}=={self.version}", *LIBRARIES)


BYTEWAX: Final = Peer("bytewax", "0.21.1", "bytewax")
PYFLINK: Final = Peer("pyflink", "2.3.0", "apache-flink")


def python_of(peer: Peer, tell: Tell, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the interpreter of a peer's environment, which is made first if need be."""
    place = directory(environ) / f"{peer.name}-{peer.version}"
    python = place / "bin" / "python"
    wanted = "\n".join(peer.requirements)
    try:
        if (place / MADE).read_text(encoding="utf-8") == wanted and python.exists():
            return python
    except OSError:
        pass  # there is none, or none that is finished
    tell(f"{peer.name}: making an environment with {peer.package} {peer.version} in {place}; a minute or two, once")
    shutil.rmtree(place, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(place)], peer)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements], peer)
    (place / MADE).write_text(wanted, encoding="utf-8")
    return python


def directory(environ: Mapping[str, str]) -> Path:
    """Return where environments lie."""
    named = environ.get("HEADWATER_BENCH_ENVS")
    if named:
        return Path(named).expanduser()
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headwater" / "bench"


def _run(command: list[str], peer: Peer) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=MAKE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise Unavailable(f"{peer.package} {peer.version} cannot be installed: {failure}") from failure
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "no reason given")
        raise Unavailable(f"{peer.package} {peer.version} cannot be installed: {said.strip()}")
