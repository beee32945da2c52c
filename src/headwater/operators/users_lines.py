"""Which line of a user's own code it was: the one that raised, or the one that is being run."""

import linecache
import sys
import traceback
from os.path import dirname, join
from pathlib import PurePath
from types import FrameType
from typing import Final

from headwater.model.secrets import without_passwords

NO_LINE: Final = ""  # where no line of the flow's own code is known

# What stands between us and the user's line in a traceback.
_NOT_USERS: Final = tuple(join(place, "") for place in (dirname(dirname(__file__)), dirname(traceback.__file__)))
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_COMPILED: Final = (".pyx", ".pxi")  # Arrow's and pandas' own, named as they were on the machine that built them
_GENERATED: Final = ("<string>", "__init__")  # the file and function of what dataclasses make


def line_raised(failure: BaseException) -> str:
    """Return the innermost line of the traceback that is the user's own."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    return _told(own[-1].filename, own[-1].lineno or 0, own[-1].name, own[-1].line or "") if own else NO_LINE


def line_written() -> str:
    """Return the user's line that is being run now: where a flow is written, that of an operator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_written_by_user(frame):
        frame = frame.f_back
    if frame is None:
        return NO_LINE
    filename = frame.f_code.co_filename
    return _told(filename, frame.f_lineno, frame.f_code.co_name, linecache.getline(filename, frame.f_lineno).strip())


def _told(filename: str, number: int, function: str, line: str) -> str:
    shown = without_passwords(line)
    return f"{filename}:{number} in {function}" + (f": {shown}" if shown else "")


def _is_written_by_user(frame: FrameType) -> bool:
    code = frame.f_code
    return (code.co_filename, code.co_name) != _GENERATED and _is_users(code.co_filename)


def _is_users(filename: str) -> bool:
    if filename.startswith(("<frozen ", *_NOT_USERS)) or filename.endswith(_COMPILED):
        return False
    return _INSTALLED.isdisjoint(PurePath(filename).parts)
