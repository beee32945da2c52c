"""What benchmarks are told on the command line: `python -m bench.NAME [--quick] [--json FILE]`."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[bool, Path | None, Callable[[str], None]], dict[str, Any]]


def run_as_told(purpose: str | None, run: Run) -> None:
    """Run a benchmark, as `headwater bench` does, and print what it found."""
    given = parser_for(purpose).parse_args()
    print_found(run(given.quick, given.json, print))


def parser_for(purpose: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every benchmark is told; its purpose is the docstring of its module."""
    parser = argparse.ArgumentParser(description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter, with noisier figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result goes; figures go beside it")
    return parser


def print_found(result: dict[str, Any]) -> None:
    """Print the ratios, and where the pictures are."""
    print(json.dumps({part: result[part] for part in ("ratios", "figures")}, indent=2))
