"""The log: lines for people, or JSON objects for programs, to standard error or to a file. Never rows.

Only this module decides where log lines go; all others use `logging`.
"""

import datetime
import logging
import logging.handlers
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson

from headwater.model.errors import ConfigError
from headwater.storage.locks import FileLock, LockHeld, file_beside, this_process, told

# A node logs for years on the disk that holds its store: with the older files, 40 MB are months of normal operation,
# and hours of one failure that repeats.
FILE_BYTES_MAX: Final = 10_000_000
OLDER_FILES: Final = 3

_QUIET: Final = frozenset({"py4j", "pyspark"})  # packages that log their internals, some under the root logger's name
_KNOWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Peers and users determine parts of log lines: no control sequence of theirs may reach a terminal or begin a line.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


class TextLogLines(logging.Formatter):
    """`12:03:59 warning runtime.node: the store is full`: for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; fields a caller added come last."""
        at = datetime.datetime.fromtimestamp(record.created).astimezone()
        name = record.name.removeprefix("headwater.")
        fields = "".join(f" {key}={value}" for key, value in _extra(record).items())
        line = f"{at:%H:%M:%S} {record.levelname.lower()} {name}: {_on_a_terminal(record.getMessage() + fields)}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JsonLogLines(logging.Formatter):
    """One object a line: ts, level, logger, message, and the fields a caller added."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        told: dict[str, Any] = {
            "ts": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info is not None:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class _Stderr(logging.StreamHandler[Any]):
    """Writes to `sys.stderr` as it is at that moment, since a live table replaces it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@contextmanager
def log_to(form: LogFormat, file: Path | None) -> Iterator[None]:
    """Write the log inside the block: everything to a file or as JSON, warnings and errors to a terminal."""
    with nullcontext() if file is None else _only_writer(file):
        yield from _logged_to(form, file)


def _logged_to(form: LogFormat, file: Path | None) -> Iterator[None]:
    handler = _Stderr() if file is None else _file(file)
    handler.setFormatter(JsonLogLines() if form is LogFormat.JSON else TextLogLines())
    handler.addFilter(lambda record: _QUIET.isdisjoint(Path(record.pathname).parts))
    wanted = logging.INFO if file is not None or form is LogFormat.JSON else logging.WARNING
    handler.setLevel(wanted)  # a logger below the root may let more through, for other handlers
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(wanted)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Refuse a file that another process logs to: when one rotates it, the other would write on into the old one."""
    place, held = path.resolve(), ExitStack()
    try:
        if place.is_file() or not place.exists():  # a device may have any number of writers
            writer = this_process("the log of a process", time.time_ns() // 1_000)
            held.callback(FileLock(file_beside(place), writer).release)
    except LockHeld as refusal:
        raise ConfigError(
            f"the log file {path} is written by {told(refusal.holder)}; give each --log-file of its own"
        ) from None
    except OSError as failure:  # a missing or read-only directory: opening the file reports it
        log.debug("the log file %s cannot be locked: %s", path, failure)
    with held:
        yield


def _file(path: Path) -> logging.Handler:
    try:
        return logging.handlers.RotatingFileHandler(
            path, maxBytes=FILE_BYTES_MAX, backupCount=OLDER_FILES, encoding="utf-8"
        )
    except OSError as failure:
        raise ConfigError(f"the log file {path} cannot be written: {failure.strerror}") from failure


def _on_a_terminal(text: str) -> str:
    """Return a text with unprintable characters escaped and its further lines indented."""
    return written_out(text).replace("\n", "\n  ")


def written_out(text: str) -> str:
    """Return a text without control sequences."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _KNOWN}
