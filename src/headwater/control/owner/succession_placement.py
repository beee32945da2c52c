"""The placement of an app's next version: instances that keep state or queues run where those are."""

from collections.abc import Iterator, Mapping

from headwater.control.messages.app_messages import AppSpec, Placed
from headwater.dataflow.graph import Graph
from headwater.dataflow.succession import Succession, UpgradeRefused


def carried_homes(before: AppSpec, after: Graph, kept: Succession, placed: Mapping[int, Placed]) -> tuple[Placed, ...]:
    """Return the placements of instances that continue one of the version before; all others go where there is room.

    `placed` has the instances of the version before, by number; they keep their lots, which the stores know. Raises
    UpgradeRefused if operators are to be fused whose states are on different nodes.
    """
    found = [*_chain_homes(after, kept, placed)]
    sinks = {chain.name: number for number, chain in enumerate(before.chains) if not chain.operators}
    for sink in after.sinks:
        home = placed.get(sinks[sink.name]) if sink.name in kept.kept else None
        if home is not None:
            found.append(Placed(sink.instance, home.host, home.anchor, home.lot, cuts=home.cuts))
    return tuple(found)


def _chain_homes(after: Graph, kept: Succession, placed: Mapping[int, Placed]) -> Iterator[Placed]:
    for chain in after.chains:
        carried = [operator for operator in chain.operators if operator in kept.kept]
        for index, number in enumerate(chain.instances):
            homes = {one: home for one in carried if (home := _home(kept, one, index, placed)) is not None}
            if len({home.host.id for home in homes.values()}) > 1:
                where = ", ".join(f"{operator} on {home.host.address}" for operator, home in homes.items())
                raise UpgradeRefused(
                    after.name,
                    [f"{chain.name} would run as one, and their states lie apart ({where}): give one fuse=False"],
                )
            for home in list(homes.values())[:1]:
                yield Placed(number, home.host, home.anchor, home.lot, cuts=home.cuts)


def _home(kept: Succession, operator: str, index: int, placed: Mapping[int, Placed]) -> Placed | None:
    """Return the placement of an instance of an operator; None if no row has needed it yet."""
    return placed.get(kept.before.chain_of(operator).first_instance + index)
