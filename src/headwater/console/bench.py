"""`headwater bench`: the comparisons of the repository's `bench` package, one name each.

A benchmark is a module `bench/NAME.py` with `run(quick: bool) -> dict`. Its result has `ratios`: for each name the
`value` that was measured, the `reach` it is expected to have and whether that is `ok`. One that also has
`plot(result, path)` draws a picture beside the JSON file.
"""

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.console.screen import screen
from headwater.console.wording import NONE
from headwater.model.errors import ConfigError, HeadwaterError

ROOT: Final = Path(__file__).resolve().parents[3]  # of the repository: src/headwater/console is three below


def bench(
    name: Annotated[str | None, typer.Argument(help="Which benchmark; without it, all names are listed.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter, with noisier figures.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result here, and plots beside it.")
    ] = None,
) -> None:
    """Compare Headwater with others on this machine; works in a checkout of the repository."""
    names = benchmarks(ROOT / "bench")
    console = screen()
    if name is None:
        for known, purpose in names.items():
            console.print(Text.assemble((f"{known:<16}", "bold"), purpose), soft_wrap=True)
        return
    if name not in names:
        raise ConfigError(f"there is no benchmark {name!r}; there are: {', '.join(names)}")
    result = _run(console, name, quick=quick, json_file=json_file)
    ratios = list(ratios_of(result))
    console.print(_table(ratios))
    missed = [ratio for ratio, told in ratios if not told.get("ok", True)]
    if missed:
        raise HeadwaterError(f"{len(missed)} of {len(ratios)} ratios are not reached: {', '.join(missed)}")


def benchmarks(directory: Path) -> dict[str, str]:
    """Return the modules that can be run, each with the first line of its docstring; nothing is imported."""
    if not (directory / "__init__.py").is_file():
        raise ConfigError("the benchmarks are not installed with the package: run this in a checkout of the repository")
    found = {}
    for path in sorted(directory.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    if not found:
        raise ConfigError(f"there are no benchmarks in {directory}")
    return found


def _run(console: Console, name: str, *, quick: bool, json_file: Path | None) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    module = importlib.import_module(f"bench.{name}")
    console.print(f"running {name}{', quickly' if quick else ''} ...", markup=False)
    result: dict[str, Any] = module.run(quick)
    if json_file is not None:
        _write(json_file, result)
        console.print(f"result: {json_file}", soft_wrap=True, markup=False)
        if hasattr(module, "plot"):
            module.plot(result, json_file.with_suffix(".png"))
            console.print(f"plot: {json_file.with_suffix('.png')}", soft_wrap=True, markup=False)
    return result


def _write(path: Path, result: dict[str, Any]) -> None:
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(result, option=options) + b"\n")
    except OSError as failure:
        raise ConfigError(f"the result {path} cannot be written: {failure.strerror}") from failure


def ratios_of(result: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the ratios by name; they may stand as a mapping or as a list with names."""
    ratios = result.get("ratios", {})
    if isinstance(ratios, Mapping):
        yield from ratios.items()
    else:
        yield from ((str(told["name"]), told) for told in ratios)


def _table(ratios: list[tuple[str, Mapping[str, Any]]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("ratio", overflow="fold")
    for heading in ("measured", "reach", ""):
        table.add_column(heading, justify="right")
    for name, told in ratios:
        verdict = Text("ok", "green") if told.get("ok", True) else Text("not reached", "bold red")
        table.add_row(name, _number(told.get("value")), _number(told.get("reach")), verdict)
    return table


def _number(value: Any) -> str:
    return NONE if value is None else f"{value:,.2f}" if isinstance(value, int | float) else str(value)
