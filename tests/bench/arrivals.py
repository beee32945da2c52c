"""Apps that were submitted, as the deployment benchmark knows them."""

from bench.edge.users import Arrival, Wanted
from headwater.client.flow_text import FlowText
from headwater.model.peers import NodeId, Peer


def arrival(identity: str, *, opens: int, due_us: int) -> Arrival:
    """Return an app of which so much has to open until it runs."""
    owner = Peer(NodeId(bytes(16)), "127.0.0.1:1", "north")
    text = FlowText(name="any", fingerprint="", written="storm.exclamation", called=identity.partition("@")[0])
    return Arrival(Wanted(text, owner, {}, opens), identity, due_us)
