"""The `headwater` command: its subcommands, and the uniform report of their errors."""

import errno
import importlib
import os
import sys
from contextlib import nullcontext
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

import headwater
from headwater.console.interrupts import INTERRUPTED_EXIT
from headwater.console.screen import fail, objects_alone, print_object
from headwater.model.errors import HeadwaterError

USAGE_EXIT: Final = 2
VERBS: Final = "headwater.console.verbs"
COMMANDS: Final = {  # and the modules that have them, under the same names
    "demo": "headwater.demo.command",
    **{name: f"headwater.console.{name}" for name in ("run", "apps", "explain", "node", "cluster")},
    **dict.fromkeys(("submit", "status", "nodes", "upgrade", "stop", "drain", "logs"), VERBS),
    **{name: f"headwater.console.{name}" for name in ("bench", "sim", "certs")},
}
PRINTING: Final = frozenset({"bench", "sim"})  # an object is their last line, or goes to a file


class Commands(TyperGroup):
    """Ends any command that raises a HeadwaterError with one sentence and a non-zero exit.

    With JSON the sentence is also on standard output, as `{"error": ...}`. Only the wanted command is imported: all of
    them take a third of a second longer, by which every request to a node would be slower.
    """

    _as_json = _prints_objects_alone = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name."""
        if cmd_name not in COMMANDS:
            return None
        found = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        if isinstance(found, typer.Typer):
            return get_command(found)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(cmd_name)(found)
        return get_command(alone)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find out whether errors are to be JSON: `bench --json` takes a file, and prints for people."""
        self._as_json = "--json" in args and args[:1] != ["bench"]
        self._prints_objects_alone = self._as_json and PRINTING.isdisjoint(args[:1])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with objects_alone() if self._prints_objects_alone else nullcontext():
                return super().invoke(ctx)
        except HeadwaterError as failure:
            self._fail(str(failure))
            raise typer.Exit(1) from failure
        except KeyboardInterrupt:
            self._fail("interrupted")
            raise typer.Exit(INTERRUPTED_EXIT) from None
        except OSError as failure:
            if failure.errno != errno.ENOSPC:
                raise
            where = "" if failure.filename is None else f" for {failure.filename}"
            fail(f"no space is left on the device{where}; make room, or write elsewhere")
            _write_no_more()
            raise typer.Exit(1) from failure
        except Exception as failure:
            wrong_usage = getattr(failure, "format_message", None)  # raised by Typer, or by Click in older versions
            if wrong_usage is None:
                raise
            if sentence := wrong_usage():  # none where the help was printed instead
                self._fail(f"{sentence} (see --help)")
            raise typer.Exit(USAGE_EXIT) from failure

    def _fail(self, sentence: str) -> None:
        fail(sentence)
        if self._as_json:
            print_object({"error": sentence})


def _write_no_more() -> None:
    """Discard what is still buffered for standard output: Python would try to write it at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    cls=Commands,
    name="headwater",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {headwater.__version__}")
        raise typer.Exit


@app.callback()
def headwater_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Stream processing at the edge: flows in Python, every operator on Spark."""
