"""`headwater apps`: the applications that ship with Headwater."""

from typing import Annotated

import orjson
import typer
from rich.text import Text

from headwater.console.screen import screen
from headwater.runtime.shipped import shipped


def apps(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the applications that ship with Headwater; `headwater run NAME` runs one."""
    known = shipped()
    if as_json:
        print(orjson.dumps({"apps": [{"name": name, "summary": known[name]} for name in known]}).decode(), flush=True)
        return
    console = screen()
    width = max(map(len, known)) + 2
    for name, summary in known.items():
        console.print(Text.assemble((f"{name:<{width}}", "bold"), summary), soft_wrap=True)
