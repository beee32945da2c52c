"""What those who carry rows and state need of a node's engine, and what they know of the apps that have queues here."""

from dataclasses import dataclass, field
from typing import Protocol

from headwater.engine.plans import ChainPlan
from headwater.engine.schemas import Schemas
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import NodeId
from headwater.model.store_contract import Store


class Dock(Protocol):
    """What a node's engine has for those who carry rows: its store, and who may be let in."""

    store: Store
    name: bytes  # the store's own
    schemas: Schemas

    def room_bytes(self, app: AppId) -> int:
        """Return how many bytes an app's queues may still take."""
        ...

    def plan(self, instance: InstanceId) -> ChainPlan | None:
        """Return how an instance is run; None if it is a sink's queue, or its app is not open."""
        ...

    def holds(self, app: str) -> bool:
        """Whether anything of an app is in the store, even if it could not be opened."""
        ...


@dataclass(slots=True)
class OpenApp:
    """An app that has queues here."""

    id: AppId
    key: NodeId
    origin: bytes  # the name of its queues here
    here: set[int] = field(default_factory=set)  # instances that run here: their rows are taken here
    leaving: set[int] = field(default_factory=set)  # instances that are moving elsewhere: no more rows are taken
    schemas_bytes: int = 0  # of its rows' schemas here, when it was opened and as others have brought some since
