"""The flows that a user names: those of a Python file, or an application; and a clear error if there is none.

The file is imported under a name of its own, with its directory first on the path while it loads, as for a script.
Afterwards the directory moves to the end of the path: later imports still find it, but a flow called `json.py` shadows
no module, here or in processes that inherit the path.
"""

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from headwater.connectors.application import App
from headwater.dataflow.stream import Flow
from headwater.loading.catalogue import apps_of, is_name, shipped_app, with_options
from headwater.loading.endpoints import Ends
from headwater.loading.module_isolation import FLOW_PREFIX
from headwater.model.errors import FlowError
from headwater.model.secrets import without_passwords

_NOT_A_NAME: Final = re.compile(r"\W")


def load_flows(written: str, ends: Ends | None = None, settings: Sequence[str] = ()) -> list[Flow]:
    """Return the flows of `FLOW.py`, the one that `FLOW.py:name` picks, or that of an application."""
    ends = ends or Ends()
    if is_name(written):
        return [ends.flow(with_options(shipped_app(written), settings))]
    path, name = parted(written)
    module = _import(path)
    built = {key: value for key, value in vars(module).items() if isinstance(value, Flow)}
    known: dict[str, Flow | type[App]] = {**built, **{kind.__name__: kind for kind in apps_of(module)}}
    chosen = list(known.values()) if name is None else _called(name, known)
    if name is not None and not chosen:
        raise FlowError(f"{path} has no flow named {name!r}; it has: {', '.join(known) or 'none'}")
    flows = [one for one in chosen if isinstance(one, Flow)]
    apps = [one for one in chosen if not isinstance(one, Flow)]
    if apps and not flows:
        return [ends.flow(with_options(kind, settings)) for kind in apps]
    ends.refuse_any(path.name)
    if settings:
        raise FlowError(f"--set {settings[0]} is for applications; {path} builds a flow and takes no options")
    if not flows:
        raise FlowError(f"{path} has no flow; give it a variable at the left margin, such as: flow = hw.flow(...)")
    return list({id(flow): flow for flow in flows}.values())


def _called(name: str, known: dict[str, Flow | type[App]]) -> list[Flow | type[App]]:
    """Return the flows of a file with this name: a variable's name or else a flow's."""
    if name in known:
        return [known[name]]
    return [one for one in known.values() if getattr(one, "name", None) == name]  # a base of applications has none


def split(written: str) -> tuple[Path, str | None]:
    """Split `FLOW.py` or `FLOW.py:name` into a path, which may not exist, and the name."""
    file, _, name = written.rpartition(":")
    is_picked = file.endswith(".py") and name and not name.endswith(".py")
    return (Path(file), name) if is_picked else (Path(written), None)


def parted(written: str) -> tuple[Path, str | None]:
    """Split `FLOW.py` or `FLOW.py:name` into a path, which must exist, and the name, if there is one."""
    path, name = split(written)
    try:
        is_directory, is_there = path.is_dir(), path.is_file()
    except OSError as failure:
        raise FlowError(f"{written[:100]} cannot be read: {failure.strerror}") from failure
    if is_directory:
        raise FlowError(f"{path} is a directory; give a Python file that builds a flow")
    if not is_there and path.suffix != ".py":
        raise FlowError(f"{path} is neither a file nor an application; `headwater apps` lists the applications")
    if not is_there:
        raise FlowError(f"there is no file {path}")
    return path, name


def _import(path: Path) -> ModuleType:
    full = path.resolve()
    name = FLOW_PREFIX + _NOT_A_NAME.sub("_", full.stem)
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise FlowError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _first_on_the_path(str(full.parent)):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as failure:  # a user's file may raise anything
        del sys.modules[name]
        raise FlowError(_explained(full, failure)) from failure
    return module


@contextmanager
def _first_on_the_path(directory: str) -> Iterator[None]:
    """Put a directory first on the path, and last afterwards, unless it was on the path already."""
    is_known = directory in sys.path
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)
        if not is_known:
            sys.path.append(directory)


def _explained(path: Path, failure: BaseException) -> str:
    """Say where in the user's files it failed, and why, without passwords: others may read it."""
    return without_passwords(_told(path, failure))


def _told(path: Path, failure: BaseException) -> str:
    what = str(failure) if isinstance(failure, FlowError) else f"{type(failure).__name__}: {failure}"
    if isinstance(failure, SyntaxError) and failure.filename is not None:
        return f"{failure.filename}:{failure.lineno}: {type(failure).__name__}: {failure.msg}"
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(path.parent)]
    at = next((frame for frame in reversed(own) if "site-packages" not in frame.filename), None)
    if at is None:
        return f"{path} cannot be loaded: {what}"
    return f"{at.filename}:{at.lineno}: {what}" + (f" (in: {at.line})" if at.line else "")
