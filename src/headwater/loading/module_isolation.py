"""Separates the modules beside flows: two apps may each have a `tools.py`, and run in the same processes.

What a flow imports at its top comes with its functions. What a function imports when it runs is found when it runs: in
the directory of its own flow's text, under a name that no other text has. The file in which a function was written
tells its text, so thread, process and order do not matter.

Once there is a text of several files, Python's own `import` and `import_module` are replaced by versions that do this.
"""

import builtins
import functools
import importlib
import itertools
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, Final

FLOW_PREFIX: Final = "headwater_flow_"  # of the module that a flow itself is
_PREFIX: Final = "headwater_text_"
_WRITTEN_MAX: Final = 10_000  # files whose text is cached
_python_import: Final = builtins.__import__
_python_import_module: Final = importlib.import_module
_NOT_USERS: Final = (
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    Path(__file__).resolve().parents[1],
)
_PACKAGES: Final = {"site-packages", "dist-packages"}
_LOCK: Final = threading.RLock()  # never held while a module runs, which may import
_texts: "dict[str, _Text]" = {}  # by directory
_by_file: "dict[str, _Text | None]" = {}
_numbers: Final = itertools.count()

text_being_built: Final[ContextVar[Path | None]] = ContextVar("text_being_built", default=None)


class _Text:
    """The modules of one flow's text."""

    def __init__(self, directory: Path) -> None:
        self.package = f"{_PREFIX}{next(_numbers)}"  # one text may be written for several nodes of a process
        self._directory = directory
        self._names = _names_in(directory)
        self.built: weakref.WeakValueDictionary[str, ModuleType] = weakref.WeakValueDictionary()
        self.at_top: Sequence[str] = ()  # modules that were imported while the flow was built
        self._has_begun = False
        self._beginning = threading.RLock()

    def has(self, name: str) -> bool:
        """Whether this names a module of the text; modules that Python has loaded take precedence, as always."""
        known = sys.modules.get(name)
        return name in self._names and (known is None or is_users(known))

    def find(self, name: str, where: Mapping[str, Any] | None, wanted: Sequence[str]) -> ModuleType:
        """Return the module of `import name`, or `from name import wanted`, in a file of this text."""
        if name in self.built:
            found = self.built.get(name if wanted else name.partition(".")[0])
            if found is not None and all(hasattr(found, one) for one in wanted):
                return found
        self._begin()
        whole = f"{self.package}.{name}"
        module = _python_import(whole, where, None, tuple(wanted), 0)
        return module if wanted else sys.modules[f"{self.package}.{name.partition('.')[0]}"]

    def _begin(self) -> None:
        """Make the package that all modules of the text are in, with those that the flow has imported at its top."""
        with self._beginning:  # an RLock: the modules imported here may come here again
            if self._has_begun:
                return
            self._has_begun = True
            package = sys.modules[self.package] = ModuleType(self.package)
            package.__path__ = [str(self._directory)]
            try:
                for name in self.at_top:
                    importlib.import_module(f"{self.package}.{name}")
            except BaseException:
                self._has_begun = False
                raise


def know_text(directory: Path, at_top: Iterable[str]) -> None:
    """Let functions of the flow in this directory import the modules beside it.

    `at_top` names those that it imports at its top. On a machine without the directory nothing is found.
    """
    with _LOCK:
        if str(directory) in _texts:
            return
        for other in [Path(known) for known in _texts]:
            if not other.exists():  # deleted by the node whose worker this is
                forget_text(other)
        if len(_names_in(directory)) > 1:
            _texts[str(directory)] = text = _Text(directory)
            text.at_top = sorted(at_top)
            _by_file.clear()
            builtins.__import__ = _import
            importlib.import_module = _import_module


def _names_in(directory: Path) -> set[str]:
    try:
        return {path.stem for path in directory.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__pycache__"}
    except OSError:
        return set()


def modules_in(directory: Path) -> dict[str, ModuleType]:
    """Return the modules that are imported from below a directory, by name, but for the flow itself."""
    below = f"{directory}/"
    return {
        name: module
        for name, module in sys.modules.copy().items()  # a copy: other threads import meanwhile
        if not name.startswith((FLOW_PREFIX, _PREFIX)) and str(_place_of(module)).startswith(below)
    }


def _place_of(module: ModuleType) -> str | None:
    """Return the file of a module; for a package without one, the directory in which it was found first."""
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)


def users_modules() -> dict[str, ModuleType]:
    """Return all modules written by users, by name; a package without a file has no content.

    By their own names: the main module may be loaded under two, in processes that multiprocessing has started.
    """
    found = (module for module in sys.modules.copy().values() if getattr(module, "__file__", None) is not None)
    return {module.__name__: module for module in found if is_users(module)}


def is_users(module: ModuleType) -> bool:
    """Whether a module is the user's own: not Python's, not of an installed package, not ours."""
    return module.__name__ != "__main__" and _is_users(_place_of(module))


@functools.lru_cache(maxsize=_WRITTEN_MAX)  # there are thousands of modules, and to resolve a path takes 100 us
def _is_users(place: str | None) -> bool:
    if place is None:
        return False
    path = Path(place).resolve()
    return _PACKAGES.isdisjoint(path.parts) and not any(path.is_relative_to(other) for other in _NOT_USERS)


@contextmanager
def only_beside(directory: Path) -> Iterator[None]:
    """Let the modules beside a file shadow others, inside this block alone.

    User modules of the same names that were imported before, of another text or of the caller, are restored at the end.
    Installed modules stay, even below this directory, where an environment may be: some can be imported only once.
    """
    names, before = _names_in(directory), sys.modules.copy()  # a copy: other threads import meanwhile
    forgotten = {
        known: module for known, module in before.items() if known.partition(".")[0] in names and is_users(module)
    }
    _forget_modules(forgotten)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    try:
        yield
    finally:
        _forget_modules(
            name
            for name, module in modules_in(directory).items()
            if is_users(module) and before.get(name) is not module
        )
        sys.modules.update(forgotten)


def _forget_modules(names: Iterable[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)


def remember_built(directory: Path, modules: Mapping[str, ModuleType]) -> None:
    """Keep the modules that a flow was built with for functions that stay in this process (of sources and sinks)."""
    text = _texts.get(str(directory))
    if text is not None:
        text.built.update(modules)


def forget_text(directory: Path) -> None:
    """Remove a deleted text, and what was imported from it."""
    with _LOCK:
        _by_file.clear()
        text = _texts.pop(str(directory), None)
        if text is not None:
            inside = f"{text.package}."
            _forget_modules(name for name in sys.modules.copy() if f"{name}.".startswith(inside))


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002  as Python's own
    locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import as Python does; in a file of a flow's text, modules of that text come first.

    While a flow is built its directory is first on the path, so Python finds them itself.
    """
    if globals is not None and text_being_built.get() is None:
        text = _text_of(globals.get("__file__"))
        if text is not None:
            whole = _whole_name(name, globals.get("__package__"), level)
            if text.has(whole.partition(".")[0]):
                return text.find(whole, globals, fromlist or ())
    return _python_import(name, globals, locals, fromlist or (), level)


def _import_module(name: str, package: str | None = None) -> ModuleType:
    """Import as `importlib.import_module` does; in a file of a flow's text, modules of that text come first."""
    if text_being_built.get() is None:
        caller = sys._getframe(1).f_globals
        text = _text_of(caller.get("__file__"))
        if text is not None:
            level = len(name) - len(name.lstrip("."))
            whole = _whole_name(name[level:], package, level)
            if text.has(whole.partition(".")[0]):
                return text.find(whole, caller, ("__name__",))
    return _python_import_module(name, package)


def _whole_name(name: str, package: object, level: int) -> str:
    """Return the absolute name of `from ..name import` in a package."""
    if level == 0 or not isinstance(package, str):
        return name
    outer = package.split(".")[: package.count(".") + 2 - level]
    return ".".join([*outer, name] if name else outer)


def _text_of(file: object) -> _Text | None:
    if not isinstance(file, str):
        return None
    try:
        return _by_file[file]
    except KeyError:
        with _LOCK:
            if len(_by_file) >= _WRITTEN_MAX:
                _by_file.clear()
            text = next((_texts[str(place)] for place in Path(file).parents if str(place) in _texts), None)
            _by_file[file] = text
            return text
