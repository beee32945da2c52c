"""The applications that ship with Headwater, found by name; they are listed without being imported.

`riotbench.stats` is the module `apps/riotbench/stats.py` of a checkout, or the same inside the installed package
`headwater_apps`; the one subclass of `App` that it defines is the application.
"""

import ast
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from headwater.connectors.application import App
from headwater.loading.python_text import parsed
from headwater.model.errors import ConfigError, FlowError

CHECKOUT: Final = Path(__file__).resolve().parents[3]  # src/headwater/loading is three below
INSTALLED: Final = "headwater_apps"
_NAME: Final = re.compile(r"[a-z]\w*(\.\w+)+")


def is_name(written: str) -> bool:
    """Whether this can be the name of an application: no path, no Python file."""
    return _NAME.fullmatch(written) is not None and not written.endswith(".py") and not Path(written).exists()


def shipped() -> dict[str, str]:
    """Return the names of all applications, each with the first line of its docstring."""
    _, place = _package()
    told = {f"{path.parent.name}.{path.stem}": _purpose(path) for path in sorted(place.glob("*/*.py"))}
    return {name: purpose for name, purpose in told.items() if purpose is not None}


def _purpose(path: Path) -> str | None:
    """Return the first line of the docstring of the application in a file; None if it has none."""
    tree = parsed(path.read_text(encoding="utf-8"), path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "hw.App" for base in node.bases):
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return None


def shipped_app(name: str) -> type[App]:
    """Import the application of this name.

    Only its own file is read: every node of a cluster does this for every app, and to read all files takes 0.2 s.
    """
    package, place = _package()
    file = place / Path(*name.split(".")).with_suffix(".py")
    if not file.is_file() or _purpose(file) is None:
        known = shipped()
        near = difflib.get_close_matches(name, known, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no application {name!r}{meant} (`headwater apps` lists them)")
    if package != INSTALLED and str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
        # Spark's own Python workers need the path too: on the twin they import an application's functions by name.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(place.parent), os.environ.get("PYTHONPATH"))))
    return apps_of(importlib.import_module(f"{package}.{name}"))[0]


def apps_of(module: ModuleType) -> list[type[App]]:
    """Return the applications that a module itself defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, App) and value.__module__ == module.__name__
    ]


def with_options(kind: type[App], settings: Sequence[str]) -> App:
    """Make an application with options written as `name=value`."""
    given: dict[str, Any] = {}
    hints = get_type_hints(kind)
    kinds = {field.name: hints[field.name] for field in fields(kind)}
    known = ", ".join(kinds) or "none"
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: write an option of {kind.name} as name=value (it has: {known})")
        if name not in kinds:
            raise ConfigError(f"{kind.name} has no option {name!r}; it has: {known}")
        try:
            given[name] = msgspec.convert(value, kinds[name], strict=False)
        except msgspec.ValidationError as failure:
            raise ConfigError(f"--set {setting}: {_what_to_give(kinds[name]) or failure}") from failure
        if given[name] != given[name]:  # every comparison with NaN is false, which would be hard to find
            raise ConfigError(f"--set {setting}: give a number")
    try:
        return kind(**given)
    except ValueError as failure:  # an option that only the application itself can judge
        raise FlowError(f"{kind.name}: {failure}") from failure


def _what_to_give(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"choose one of {', '.join(map(str, get_args(kind)))}"
    return {int: "give a whole number", float: "give a number", bool: "give true or false"}.get(kind, "")


def _package() -> tuple[str, Path]:
    if (CHECKOUT / "apps" / "__init__.py").is_file():
        return "apps", CHECKOUT / "apps"
    spec = find_spec(INSTALLED)
    if spec is None or spec.origin is None:
        raise ConfigError("the applications are not installed: reinstall headwater, or run this in a checkout")
    return INSTALLED, Path(spec.origin).parent
