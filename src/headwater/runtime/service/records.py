"""What a node records besides rows, to have it after a restart: the apps submitted to it, and the peers it knew."""

import logging
import os
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from headwater.control.messages.app_messages import AppSpec, Placed
from headwater.engine.ledger import Ledger
from headwater.model.peers import Peer
from headwater.model.store_layout import DRAINING_KEY, OWNED_PREFIX
from headwater.storage.lmdb_store import LmdbStore

log = logging.getLogger(__name__)

CLEARING: Final = b"clearing"
PEERS_FILE: Final = "peers"
PEERS_KEPT: Final = 64  # enough that some are still there


class UpgradePhase(StrEnum):
    """The phase of an upgrade."""

    DRAINING = "draining"  # sources are held, and rows run out; can be taken back
    ENDING = "ending"  # nothing waits anywhere: the version before is being stopped
    ADOPTING = "adopting"  # nodes pass what the old version kept to the next


class Upgrading(msgspec.Struct, array_like=True):
    """An upgrade that is under way."""

    spec: AppSpec  # of the next version
    source_names: tuple[str, ...]
    homes: tuple[Placed, ...]  # of the instances whose state is passed on
    given_up: tuple[str, ...]
    takes_rows: bool  # the queued rows are passed on as well, since the old version cannot process them
    patience_s: float
    phase: UpgradePhase = UpgradePhase.DRAINING
    can_take: bool = False  # whether `takes_rows` is possible, if it comes to that


class OwnedRecord(msgspec.Struct, array_like=True):
    """An app whose owner this node is."""

    spec: AppSpec
    name: str  # as users call it
    submitter: str
    source_names: tuple[str, ...]
    placed: tuple[Placed, ...] = ()
    has_run: bool = False
    is_ending: bool = False
    accounts: dict[str, Ledger] = {}  # of nodes that have left for good, by the name of their store
    version: int = 1
    nodes: tuple[Peer, ...] = ()  # that have, or once had, something of it
    upgrading: Upgrading | None = None
    note: str = ""  # how the last upgrade ended

    @property
    def id(self) -> str:
        """The name that is unique to this submission."""
        return self.spec.name

    @property
    def has_ended(self) -> bool:
        """Whether it has been stopped everywhere, for its next version."""
        return self.upgrading is not None and self.upgrading.phase is UpgradePhase.ADOPTING

    @property
    def places(self) -> tuple[Peer, ...]:
        """The nodes it is on now: those of its sources, and the hosts of its instances."""
        return (*self.spec.sources, *(one.host for one in self.placed))

    def note_nodes(self) -> None:
        """Add its present nodes to those that had a part of it."""
        known = {peer.id: peer for peer in (*self.nodes, *self.places)}
        self.nodes = tuple(known.values())


class Keeping:
    """The records of one node, in its store."""

    def __init__(self, store: LmdbStore, data: Path) -> None:
        """Read the records."""
        self._store, self._peers_file = store, data / PEERS_FILE
        with store.read() as snapshot:
            kept = [msgspec.msgpack.decode(packed, type=OwnedRecord) for _, packed in snapshot.scan(OWNED_PREFIX)]
            draining = snapshot.get(DRAINING_KEY)
        self.is_draining = draining is not None
        self.is_clearing = draining == CLEARING  # its store is being deleted, so the drain cannot be revoked
        self.owned: dict[str, OwnedRecord] = {one.id: one for one in kept}

    def keep(self, owned: OwnedRecord) -> None:
        """Record the present state of an app, durably."""
        owned.note_nodes()
        self.owned[owned.id] = owned
        with self._store.write() as txn:
            txn.put(_key(owned.id), msgspec.msgpack.encode(owned))

    def agree(self, app: str, placed: tuple[Placed, ...], has_run: bool) -> None:
        """Keep where an app's instances are placed; if that cannot be written, nothing has changed."""
        owned = self.owned[app]
        agreed = msgspec.structs.replace(owned, placed=placed, has_run=has_run)
        agreed.note_nodes()
        with self._store.write() as txn:
            txn.put(_key(app), msgspec.msgpack.encode(agreed))
        owned.placed, owned.has_run, owned.nodes = agreed.placed, agreed.has_run, agreed.nodes

    def succeed(self, app: str, successor: OwnedRecord) -> None:
        """Replace an app by its next version in one transaction."""
        self.owned.pop(app)
        self.owned[successor.id] = successor
        with self._store.write() as txn:
            txn.delete(_key(app))
            txn.put(_key(successor.id), msgspec.msgpack.encode(successor))

    def drop(self, app: str) -> None:
        """Forget an app that has ended."""
        with self._store.write() as txn:
            txn.delete(_key(app))
        self.owned.pop(app, None)

    def drain(self, wanted: bool) -> None:
        """Record that this node is to leave for good, or that it is not, or has left."""
        self.is_draining, self.is_clearing = wanted, False
        with self._store.write() as txn:
            if wanted:
                txn.put(DRAINING_KEY, b"")
            else:
                txn.delete(DRAINING_KEY)

    def clear(self) -> None:
        """Record that the store is being deleted, as nothing in it is needed any more."""
        self.is_clearing = True
        with self._store.write() as txn:
            txn.put(DRAINING_KEY, CLEARING)

    def peers(self) -> list[str]:
        """Return the addresses of the peers known before the restart."""
        try:
            return self._peers_file.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as failure:
            log.warning("%s cannot be read, and is passed over: %s", self._peers_file, failure)
            return []

    def keep_peers(self, addresses: list[str]) -> None:
        """Record the known peers, to find them after a restart; an empty list does not replace an older one."""
        if not addresses:
            return
        fresh = self._peers_file.with_suffix(".new")
        try:
            fresh.write_text("\n".join(addresses[:PEERS_KEPT]) + "\n", encoding="utf-8")
            os.replace(fresh, self._peers_file)
        except OSError as failure:
            log.warning("%s cannot be written: %s", self._peers_file, failure)


def _key(app: str) -> bytes:
    return OWNED_PREFIX + app.encode()
