"""The very nodes of the simulator, over real wires: they find one another, and nobody speaks in another's name."""

import asyncio
import time
from random import Random

from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.control.messages.events import (
    MachineConfig,
    MessageReceived,
    NodeEvent,
    NodeStarted,
    NodeTicked,
    SendMessage,
)
from headwater.control.node import NodeMachine
from headwater.links.credentials import Credentials
from headwater.links.emulation import LinkQuality, LinkTable
from headwater.links.wire import Wire, WireConfig
from headwater.model.peers import NodeId, Peer
from headwater.model.time import SECOND, Instant, milliseconds
from tests.links.wires import Cluster, told, until


class Driver:
    """Drives one node over a wire: messages and time in, messages out."""

    def __init__(self, credentials: Credentials, zone: str, links: LinkTable, seed: int) -> None:
        """Take a port."""
        self.wire = Wire(WireConfig(listen="127.0.0.1:0"), credentials, on_message=self._hear, links=links)
        self.node = NodeMachine(Peer(self.wire.node_id, self.wire.address, zone), MachineConfig(), Random(seed))
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, event: NodeEvent) -> None:
        """Let something happen to the node, and do what it wants."""
        now = Instant(time.time_ns() // 1_000)
        for effect in self.node.handle(event, now):
            if isinstance(effect, SendMessage):
                self.wire.send(effect.to, effect.message)
        self.node.check()
        due = self.node.deadline()
        if self._timer is not None:
            self._timer.cancel()
        if due is not None:
            wait = max(0, due - now) / SECOND
            self._timer = asyncio.get_running_loop().call_later(wait, self.tell, NodeTicked())

    def _hear(self, sender: NodeId, message: AnyNodeMessage) -> None:
        self.tell(MessageReceived(message))

    async def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
        await self.wire.close()


def test_nodes_form_a_ring_over_certified_and_emulated_links(cluster: Cluster) -> None:
    async def story() -> None:
        far = LinkQuality(delay=milliseconds(10), jitter=milliseconds(2), loss=0.01)
        drivers = [
            Driver(cluster.node_credentials(), zone, LinkTable(zone, default=far, seed=1), seed)
            for seed, zone in enumerate(["north", "north", "south", "south", "west"])
        ]
        for driver in drivers:
            driver.wire.start()
            driver.tell(NodeStarted(() if driver is drivers[0] else (drivers[0].wire.address,)))
        everybody = {driver.wire.node_id for driver in drivers}
        await until(
            lambda: all(
                driver.node.is_active
                and {peer.id for peer in driver.node.ring.known.leaves} == everybody - {driver.wire.node_id}
                for driver in drivers
            )
        )
        for driver in drivers:
            assert driver.wire.status().refused == {}
            await driver.close()

    told(story())
