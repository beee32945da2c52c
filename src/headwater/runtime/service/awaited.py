"""What another app of this node has written or read alone, and is to go on with: no app begins there instead.

A lock ends with the process that holds it. After a restart the apps of a node come back one by one, in any order. So
one that had to wait for a target would get it, and the app whose rows are there would be locked out of it. The same
holds for the moment in which an app's next version has yet to open what the one before has closed.
"""

from collections.abc import Collection, Iterable

from headwater.dataflow.connectors import Resource, resources_of
from headwater.engine.positions import read_record
from headwater.model.errors import ConnectorError
from headwater.model.store_contract import Snapshot, Store
from headwater.runtime.app import NodeApp


def refuse_awaited(store: Store, app: NodeApp, name: str, others: Iterable[NodeApp]) -> None:
    """Raise ConnectorError if a source or sink that is to begin needs what one of another app is to go on with."""
    number = [declared.name for declared in app.graph.declarations].index(name)
    wanted = resources_of(app.graph.declarations[number].part)
    if not wanted:
        return
    with store.read() as snapshot:
        if read_record(snapshot, app.id, number).position is None:
            for other in others:
                if _name_of(other) != _name_of(app):  # its version before leaves it all that it has
                    _refuse_what_it_has(snapshot, wanted, other)


def _refuse_what_it_has(snapshot: Snapshot, wanted: Collection[Resource], other: NodeApp) -> None:
    for number, declared in enumerate(other.graph.declarations):
        position = read_record(snapshot, other.id, number).position
        for resource in () if position is None else resources_of(declared.part, position):
            if resource in wanted:
                raise ConnectorError(
                    f"{resource.name} is used by {declared.name!r} of app {other.kept_as!r}, which is to go on with "
                    f"it; {resource.harm}: stop that app, or {resource.advice}"
                )


def _name_of(app: NodeApp) -> str:
    return app.kept_as.rpartition("@")[0]
