"""What carrying rows and state needs of a node's engine (the dock), and what it knows of apps with queues here."""

from dataclasses import dataclass, field
from typing import Protocol

from headwater.engine.plans import ChainPlan
from headwater.engine.schemas import Schemas
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import NodeId
from headwater.model.store_contract import Store


class Dock(Protocol):
    """A node's engine, as far as carrying rows and state needs it."""

    store: Store
    name: bytes  # the store's own
    schemas: Schemas

    def room_bytes(self, app: AppId) -> int:
        """Return how many bytes an app's queues may still take."""
        ...

    def plan(self, instance: InstanceId) -> ChainPlan | None:
        """Return the plan of an instance; None if it is a sink's queue, or its app is not open."""
        ...

    def holds(self, app: str) -> bool:
        """Whether the store has anything of an app, even if the app could not be opened."""
        ...


@dataclass(slots=True)
class OpenApp:
    """An app that has queues here."""

    id: AppId
    key: NodeId
    origin: bytes  # the name of its queues here
    here: set[int] = field(default_factory=set)  # instances that run here, whose rows this node takes
    leaving: set[int] = field(default_factory=set)  # instances that are moving away, whose rows it does not take
    schemas_bytes: int = 0  # of its rows' schemas in the store: when it was opened, and received since
