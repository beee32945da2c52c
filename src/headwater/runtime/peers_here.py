"""Several peers on one machine: the settings of each, derived from those of the machine.

A large machine is worth as many places on the ring as small ones that could do its work. Its peers listen on ports in a
row, for others and for metrics, and keep what they have below directories of their own, `peer-01` and so on: each is a
node, with its own key. What the machine has they divide: capacity, workers, memory and disk.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from headwater.model.errors import ConfigError
from headwater.model.peers import PEERS_OF_A_MACHINE_MAX, capacities_among, peer_capacities
from headwater.runtime.settings import NodeSettings
from headwater.spark.address import address_of, host_and_port
from headwater.workers.config import cores_here

STORE: Final = "store"  # below the data of one peer


def settings_of_peers(settings: NodeSettings) -> list[NodeSettings]:
    """Return the settings of each peer of a machine; a single peer has those of the machine."""
    peers = settings.peers or len(peer_capacities(settings.capacity))
    _refuse_another_number(settings.data, peers)
    return [replace(settings, peers=1)] if peers == 1 else list(_each(settings, peers))


def _each(settings: NodeSettings, peers: int) -> Iterator[NodeSettings]:
    workers = cores_here() if settings.workers is None else settings.workers
    for number, capacity in enumerate(capacities_among(peers, settings.capacity)):
        yield replace(
            settings,
            peers=1,
            listen=_next(settings.listen, number),
            advertise=None if settings.advertise is None else _next(settings.advertise, number),
            capacity=capacity,
            data=settings.data / _name(number),
            certs=None if settings.certs is None else _certs(settings.certs, number),
            workers=max(1, workers // peers),
            memory=max(1, settings.memory // peers),
            disk=max(1, settings.disk // peers),
            metrics=None if settings.metrics is None else _next(settings.metrics, number),
        )


def _name(number: int) -> str:
    return f"peer-{number + 1:02}"


def _next(address: str, number: int) -> str:
    """Return the address with a higher port; port 0 stays 0."""
    place = host_and_port(address)
    assert place is not None, address
    host, port = place
    return address if port == 0 else address_of(host, port + number)


def _certs(certs: Path, number: int) -> Path:
    own = certs / _name(number)
    if not own.is_dir():
        raise ConfigError(
            f"{certs} has no {own.name}, and each peer needs a key of its own: make it with "
            f"`headwater certs node AUTHORITY --name NAME-{number + 1:02} --address HOST`, and copy it to {own}"
        )
    return own


def _refuse_another_number(data: Path, peers: int) -> None:
    """Refuse a number of peers other than that which has kept rows here, since rows would be left behind."""
    kept = [number for number in range(PEERS_OF_A_MACHINE_MAX) if (data / _name(number)).is_dir()]
    before = max(kept) + 1 if kept else int((data / STORE).is_dir())
    if before > peers or (before == 1 and not kept and peers > 1) or (kept and peers == 1):
        raise ConfigError(
            f"{data} has the rows and state of {before} {'peer' if before == 1 else 'peers'}, which {peers} would not "
            f"find: start it with --peers {before}, drain it, and give another --data for another number"
        )
