"""An app's spec as stewards see it, from its graph: the chains to place, their sources, which of them keep state."""

from collections.abc import Mapping, Sequence

from headwater.control.messages.app_messages import CHAINS_MAX, FLOW_BYTES_MAX, SOURCES_MAX, AppSpec, ChainSpec
from headwater.dataflow.graph import Chain, Graph, Route, Spread
from headwater.model.errors import FlowError
from headwater.model.peers import NodeId, Peer, key_of


def app_spec(graph: Graph, sources: Sequence[Peer], flow: bytes, key: NodeId | None = None) -> AppSpec:
    """Return the spec of a graph whose sources, in order, are read on these nodes; instances have the graph's numbers.

    The sinks are at the root of the app's tree: the owner of the key, which is that of the app's name unless given.
    """
    if len(sources) != len(graph.sources):
        raise FlowError(f"flow {graph.name!r} has {len(graph.sources)} sources, and {len(sources)} nodes were named")
    if graph.instance_count > CHAINS_MAX or len(sources) > SOURCES_MAX:
        raise FlowError(
            f"flow {graph.name!r} has {graph.instance_count} instances and {len(sources)} sources; "
            f"at most {CHAINS_MAX} and {SOURCES_MAX} can be placed"
        )
    if len(flow) > FLOW_BYTES_MAX:
        raise FlowError(f"flow {graph.name!r} has {len(flow):,} bytes of code; at most {FLOW_BYTES_MAX:,} are possible")
    fed = _fed_by(graph)
    chains = [_chain_spec(graph, chain, index, fed) for chain in graph.chains for index in range(chain.parallelism)]
    sinks = [
        ChainSpec(sink.name, 0, sink.stage - 1, fed[sink.name], keeps=True)
        for sink in sorted(graph.sinks, key=lambda sink: sink.instance)
    ]
    return AppSpec(graph.name, key_of(graph.name) if key is None else key, tuple(sources), (*chains, *sinks), flow)


def _chain_spec(graph: Graph, chain: Chain, index: int, fed: Mapping[str, tuple[int, ...]]) -> ChainSpec:
    feeds = [route for route in graph.routes if route.target == chain.head]
    return ChainSpec(
        chain.name[:100] if chain.parallelism == 1 else f"{chain.name[:90]} {index}",
        len(chain.operators),
        chain.stage - 1,
        fed[chain.head],
        keeps=True,  # even without state: its queue holds rows that their senders have deleted
        on_demand=index > 0 and all(route.spread is Spread.KEY for route in feeds),
        is_stateless=_is_stateless(graph, chain, feeds),
    )


def _is_stateless(graph: Graph, chain: Chain, feeds: Sequence[Route]) -> bool:
    """Whether new rows may go through a chain elsewhere, while those on the disk of its lost host wait for it.

    Not if an operator keeps something, nor if time matters to it or to any behind it: an instance keeps how far time
    has come on each of its channels, which nobody tells twice; and where time goes on without the rows that wait, they
    would come late, and be dropped. Nor if state is behind it and it brings rows there in order, which is promised for
    rows of a key: where batches are spread over several instances anyway, it is not.
    """
    parts = [graph.operator(name) for name in chain.operators]
    if any(part.state_settings is not None for part in parts) or not graph.timed.isdisjoint(chain.operators):
        return False
    is_in_order = chain.parallelism == 1 or any(route.spread is not Spread.BALANCE for route in feeds)
    return not is_in_order or graph.keeping.isdisjoint(chain.operators)


def _fed_by(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return for every vertex the numbers of the sources that its rows come from."""
    found: dict[str, tuple[int, ...]] = {name: (number,) for number, name in enumerate(graph.sources)}
    for declared in graph.declarations:  # inputs before those that read them
        if declared.name not in found:
            found[declared.name] = tuple(sorted({one for given in declared.inputs for one in found[given.operator]}))
    return found
