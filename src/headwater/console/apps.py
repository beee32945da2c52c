"""`headwater apps`: the applications that ship with Headwater, or the apps of a cluster."""

from typing import Annotated

import typer
from rich.text import Text

from headwater.client.cluster import Cluster
from headwater.console.screen import print_object, screen
from headwater.console.verbs import TO, CertsOption, InsecureOption, JsonOption, show_apps_told
from headwater.loading.catalogue import shipped


def apps(
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="HOST:PORT", envvar=TO, help="List the apps of this node's cluster instead."),
    ] = None,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the applications that ship with Headwater (`headwater run NAME` runs one), or the apps of a cluster."""
    if to is not None:
        with Cluster(to, certs=certs, insecure=insecure) as cluster:
            show_apps_told(cluster.apps(), as_json=as_json)
        return
    known = shipped()
    if as_json:
        print_object({"apps": [{"name": name, "summary": known[name]} for name in known]})
        return
    console = screen()
    width = max(map(len, known)) + 2
    for name, summary in known.items():
        console.print(Text.assemble((f"{name:<{width}}", "bold"), summary), soft_wrap=True)
