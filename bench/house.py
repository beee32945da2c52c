"""The house in figures that a script can count: who drives an engine, names with several homes, lines, large classes.

Nothing is run: the sources are read. The figures are watched so that they fall; `tests/test_floor_plan.py` keeps those
that have reached their goal.
"""

import ast
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.command_line import run_as_told

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "headwater"
MACHINE_ROOMS: Final = ("control", "engine", "sim")  # whose classes are to stay small
METHODS_MAX: Final = 25
GOALS: Final = {
    "drivers_of_an_engine": 1,
    "class_names_with_several_homes": 0,
    "large_classes": 0,
    "source_lines": 54_500,
}


def run(quick: bool, output: Path | None, tell: Callable[[str], None]) -> dict[str, Any]:
    """Count; the short form is the same."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _modules(SOURCE)}
    drivers = sorted(_told(path) for path in _modules(SOURCE, ROOT / "tests") if _drives_an_engine(path))
    homes = {name: places for name, places in _homes(trees).items() if len(places) > 1}
    large = {name: methods for name, methods in _methods(trees) if methods > METHODS_MAX}
    figures = {
        "drivers_of_an_engine": len(drivers),
        "class_names_with_several_homes": len(homes),
        "large_classes": len(large),
        "source_lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees),
    }
    details: dict[str, Any] = {
        "drivers": drivers,
        "homes": homes,
        "large": large,
        "lines_by_room": _lines_by_room(trees),
        "goals": {name: f"<= {goal:,}" for name, goal in GOALS.items()},
        "reached": {name: figures[name] <= goal for name, goal in GOALS.items()},
        "limits": {
            "drivers_of_an_engine": ", ".join(drivers),
            "class_names_with_several_homes": ", ".join(sorted(homes)),
            "large_classes": ", ".join(f"{name} ({methods})" for name, methods in large.items()),
            "source_lines": ", ".join(f"{room} {lines:,}" for room, lines in _lines_by_room(trees).items()),
        },
    }
    for room, lines in details["lines_by_room"].items():
        tell(f"{room:<12} {lines:>7,} lines")
    result: dict[str, Any] = {"ratios": figures, "details": details, "figures": []}
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _modules(*directories: Path) -> list[Path]:
    return sorted(path for directory in directories for path in directory.rglob("*.py"))


def _told(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _drives_an_engine(path: Path) -> bool:
    """Whether a module carries out what the scheduler wants: it matches the effect that gives a worker a turn."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) and node.cls.id == "RunTurn"
        for node in ast.walk(tree)
    )


def _classes(trees: Iterable[tuple[Path, ast.Module]]) -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, tree in trees:
        yield from ((path, node) for node in tree.body if isinstance(node, ast.ClassDef))


def _homes(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, node in _classes(trees.items()):
        if not node.name.startswith("_"):
            homes[node.name].append(_told(path))
    return homes


def _methods(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, int]]:
    """Yield the classes of rooms that hold machines, with how many methods each has."""
    for path, node in _classes(trees.items()):
        if path.relative_to(SOURCE).parts[0] in MACHINE_ROOMS:
            yield node.name, sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)


def _lines_by_room(trees: dict[Path, ast.Module]) -> dict[str, int]:
    lines: defaultdict[str, int] = defaultdict(int)
    for path in trees:
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return dict(sorted(lines.items(), key=lambda one: -one[1]))


if __name__ == "__main__":
    run_as_told(__doc__, run)
