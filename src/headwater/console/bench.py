"""`headwater bench`: the comparisons of the repository's `bench` package, by name.

A benchmark is a module `bench/NAME.py` with `run(quick, output, tell) -> dict`: it reports its progress with `tell`,
writes its result to the file `output` and its figures beside it, and returns `ratios` by name and `details`: the
`goals` of these, which of them are `reached`, and what `limits` the others.
"""

import ast
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.console.screen import screen
from headwater.console.wording import NONE
from headwater.loading.python_text import parsed
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
    result = _run(console, name, quick=quick, output=json_file)
    ratios = ratios_of(result)
    console.print(_table(ratios))
    for figure in result.get("figures", ()):
        console.print(f"figure: {figure}", soft_wrap=True, markup=False)
    missed = [ratio.name for ratio in ratios if ratio.reached is False]
    for name in missed:
        limit = result.get("details", {}).get("limits", {}).get(name)
        console.print(f"{name}: {limit or 'no reason is known'}", soft_wrap=True, markup=False)
    if missed:
        raise HeadwaterError(f"{len(missed)} of {len(ratios)} ratios are not reached: {', '.join(missed)}")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One ratio: the measurement, its goal, and whether it is reached."""

    name: str
    value: float | None
    goal: str
    reached: bool | None  # None if it was not measured


def benchmarks(directory: Path) -> dict[str, str]:
    """Return the modules that can be run, each with the first line of its docstring; nothing is imported."""
    if not (directory / "__init__.py").is_file():
        raise ConfigError("the benchmarks are not installed with the package: run this in a checkout of the repository")
    found = {}
    for path in sorted(directory.glob("*.py")):
        tree = parsed(path.read_text(encoding="utf-8"), path)
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    if not found:
        raise ConfigError(f"there are no benchmarks in {directory}")
    return found


def _run(console: Console, name: str, *, quick: bool, output: Path | None) -> dict[str, Any]:
    def tell(message: str) -> None:
        console.print(message, soft_wrap=True, markup=False)

    sys.path.insert(0, str(ROOT))
    module = importlib.import_module(f"bench.{name}")
    tell(f"benchmark {name}{', the short form' if quick else ''}")
    try:
        result: dict[str, Any] = module.run(quick, output, tell)
    except OSError as failure:
        raise ConfigError(f"the benchmark {name} could not go on: {failure}") from failure
    if output is not None:
        tell(f"result: {output}")
    return result


def ratios_of(result: Mapping[str, Any]) -> list[Ratio]:
    """Return the ratios of a result, with their goals."""
    details = result.get("details", {})
    goals, reached = details.get("goals", {}), details.get("reached", {})
    return [
        Ratio(name, value, goals.get(name, NONE), reached.get(name)) for name, value in result.get("ratios", {}).items()
    ]


def _table(ratios: Sequence[Ratio]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("ratio", overflow="fold")
    for heading in ("measured", "to reach", ""):
        table.add_column(heading, justify="right")
    for ratio in ratios:
        measured = NONE if ratio.value is None else f"{ratio.value:,.2f}"
        table.add_row(ratio.name, measured, ratio.goal, _verdict(ratio.reached))
    return table


def _verdict(reached: bool | None) -> Text:
    if reached is None:
        return Text("not measured", "dim")
    return Text("ok", "green") if reached else Text("not reached", "bold red")
