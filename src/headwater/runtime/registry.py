"""The apps in a store: the number under which each keeps its state, its structure, and its code.

What is to be deleted is recorded as rubbish (a tombstone) in the commit that discards it, and deleted in slices
afterwards, by this node or the next one on the store: no commit is long, and a node that is killed leaves nothing
behind.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.dataflow.graph import Graph
from headwater.dataflow.manifest import Manifest, manifest_of
from headwater.dataflow.succession import Succession, UpgradeRefused, succession, takes_rows_of
from headwater.engine.ledger import Ledger, read_ledger
from headwater.engine.positions import read_record
from headwater.engine.state_adoption import adopt, adopt_as_it_lies, rows_waiting
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import FlowError, StoreError
from headwater.model.ids import AppId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import (
    LAST_APP_KEY,
    RUBBISH_PREFIX,
    app_prefixes,
    app_record_key,
    code_key,
    code_prefix,
)
from headwater.runtime.app import NodeApp
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.code import pack_graph

SLICE: Final = 1_000  # keys deleted in one commit, for which other writers wait


class AppRecord(msgspec.Struct, array_like=True, frozen=True):
    """An app as the store knows it."""

    number: int
    fingerprint: str
    manifest: Manifest | None = None  # None: written before manifests existed


@dataclass(frozen=True, slots=True)
class Upgrade:
    """How a flow is to replace another version of it."""

    given_up: tuple[str, ...] = ()  # operators, sources and sinks whose state is discarded
    predecessor: str = ""  # that version's name in the store, if it is not the flow's
    takes_rows: bool = False  # queued rows too, which is possible only if the versions differ in their sinks alone


class Registry:
    """The apps of one store."""

    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._code_numbers = itertools.count(1)
        with store.read() as snapshot:
            found = [key[len(RUBBISH_PREFIX) :] for key, _ in snapshot.scan(RUBBISH_PREFIX)]
        self._rubbish = [int.from_bytes(number, "big") for number in found]

    def find(self, name: str) -> AppRecord | None:
        """Return the record of an app."""
        with self._store.read() as snapshot:
            return _read(snapshot, name)

    def register(self, graph: Graph, kept_as: str = "") -> tuple[AppId, tuple[int, ...]]:
        """Find or create the app's record, and store its code."""
        app = self._place_of(graph, kept_as or graph.name)
        packed = self._packed(graph)
        with self._store.write() as txn:
            _put_code(txn, app, packed)
        return app, tuple(packed)

    def _place_of(self, graph: Graph, name: str) -> AppId:
        manifest = manifest_of(graph)
        with self._store.write() as txn:
            record = _read(txn, name)
            if record is None:
                record = AppRecord(_next_number(txn), graph.fingerprint, manifest)
            found = _as_successor(graph.name, record, graph.fingerprint, manifest)
            _write(txn, name, msgspec.structs.replace(record, manifest=found))
        return AppId(record.number)

    def _packed(self, graph: Graph) -> dict[int, bytes]:
        """Return the pickled code of all chains, numbered; outside the transaction, to keep that short."""
        return {next(self._code_numbers): code for code in pack_graph(graph)}

    def differs(self, graph: Graph) -> bool:
        """Whether the store holds another version of a flow."""
        record = self.find(graph.name)
        if record is None:
            return False
        manifest = manifest_of(graph)
        return not _is_of(record, graph.fingerprint, manifest) or bool(_reasons(graph.name, record, manifest))

    def check(self, graph: Graph, upgrade: Upgrade, kept_as: str = "") -> Succession:
        """Return what a graph would keep of the version in the store; raises if it cannot replace it."""
        name = upgrade.predecessor or kept_as or graph.name
        record = self.find(name)
        if record is None:
            raise FlowError(f"the store has no flow {name!r} to upgrade; run it without")
        if record.manifest is None:
            raise FlowError(
                f"flow {graph.name!r} was last run by a version of Headwater that did not note what it keeps; "
                "run it as it was once more, and upgrade it then"
            )
        return succession(graph.name, record.manifest, manifest_of(graph), upgrade.given_up)

    def upgrade(
        self,
        graph: Graph,
        upgrade: Upgrade,
        kept_as: str = "",
        also: Callable[[Transaction], None] = lambda txn: None,
    ) -> tuple[AppId, tuple[int, ...]]:
        """Replace a version that does not run by a graph, and store its code.

        Its ledger begins anew, unless it takes over rows: all rows of the old version are out. `also` adds its writes
        to the transaction that makes the copy valid.
        """
        kept = self.check(graph, upgrade, kept_as)
        name = kept_as or graph.name
        predecessor = upgrade.predecessor or name
        record = self.find(predecessor)
        assert record is not None, predecessor
        if upgrade.takes_rows:
            _refuse_unlike(record, graph, kept)
        else:
            self._refuse_waiting(record, graph)
        with self._store.write() as txn:
            number = _next_number(txn)
            txn.put(_rubbish_key(number), b"")  # until the copy is valid
        if upgrade.takes_rows:
            given_up = [kept.after.number_of(sink) for sink in kept.given_up]
            adopt_as_it_lies(self._store, AppId(record.number), AppId(number), given_up)
        else:
            adopt(self._store, AppId(record.number), AppId(number), kept)
        packed = self._packed(graph)
        with self._store.write() as txn:
            _put_code(txn, AppId(number), packed)
            _discard(txn, predecessor, record.number)
            txn.delete(_rubbish_key(number))
            _write(txn, name, AppRecord(number, graph.fingerprint, kept.after))
            also(txn)
        self._rubbish.append(record.number)
        return AppId(number), tuple(packed)

    def _refuse_waiting(self, record: AppRecord, graph: Graph) -> None:
        with self._store.read() as snapshot:
            waiting = rows_waiting(snapshot, AppId(record.number))
        if waiting:
            raise FlowError(
                f"{waiting:,} rows still wait for the version of flow {graph.name!r} that the store has; "
                "let them through with that version first: headwater run OLD.py --store DIR --drain"
            )

    def delete(self, app: NodeApp) -> None:
        """Delete everything the store has of a stopped app."""
        with self._store.write() as txn:
            _discard(txn, app.kept_as or app.name, app.id)
        self._sweep(app.id)

    def sweep(self) -> None:
        """Delete replaced versions, and what a killed node has left."""
        while self._rubbish:
            number = self._rubbish[0]
            self._sweep(number)
            self._rubbish.remove(number)  # last: a full disk may interrupt the sweep

    def _sweep(self, number: int) -> None:
        for prefix in app_prefixes(AppId(number)):
            while self._delete_some(prefix):
                pass
        with self._store.write() as txn:
            txn.delete(_rubbish_key(number))

    def _delete_some(self, prefix: bytes) -> bool:
        """Delete a slice; return whether there may be more."""
        with self._store.write() as txn:
            keys = [key for key, _ in itertools.islice(txn.scan(prefix), SLICE)]
            for key in keys:
                txn.delete(key)
        return len(keys) == SLICE

    def ledger(self, app: NodeApp) -> Ledger:
        """Add up an app's ledger as of now."""
        numbers = {declared.name: number for number, declared in enumerate(app.graph.declarations)}
        with self._store.read() as snapshot:
            counts = [read_record(snapshot, app.id, numbers[name]).counts() for name in app.graph.sources]
            return read_ledger(snapshot, app.id, app.graph, counts)


def _refuse_unlike(record: AppRecord, graph: Graph, kept: Succession) -> None:
    if not takes_rows_of(record.fingerprint, graph, kept):
        raise FlowError(f"flow {graph.name!r} has another structure than the version whose rows it would take")


def _as_successor(flow: str, record: AppRecord, fingerprint: str, manifest: Manifest) -> Manifest:
    """Return what is to be remembered of a flow; refuse one that would find rows and state of another version."""
    reasons = _reasons(flow, record, manifest)
    is_of = _is_of(record, fingerprint, manifest)
    if reasons or not is_of:
        raise FlowError(
            f"the store holds another version of flow {flow!r} ({'; '.join(reasons) or 'its structure is another'}); "
            "go on where it stood with --upgrade, give the flow another name, or use another --store"
        )
    return manifest if record.manifest is None else succession(flow, record.manifest, manifest).after


def _reasons(flow: str, record: AppRecord, manifest: Manifest) -> list[str]:
    """Return in what a flow differs from the one that a store knows, as far as that can be told by its manifest."""
    if record.manifest is None:
        return []
    try:
        succession(flow, record.manifest, manifest)
    except UpgradeRefused as refusal:
        return refusal.reasons
    return []


def _is_of(record: AppRecord, fingerprint: str, manifest: Manifest) -> bool:
    """Whether a flow is the one that a store knows; the schemas of its state variables may be others."""
    return record.fingerprint == fingerprint and (record.manifest is None or record.manifest.form == manifest.form)


def _put_code(txn: Transaction, app: AppId, packed: Mapping[int, bytes]) -> None:
    for key in [key for key, _ in txn.scan(code_prefix(app))]:
        txn.delete(key)
    for number, code in packed.items():
        txn.put(code_key(app, number), code)


def _read(snapshot: Snapshot, name: str) -> AppRecord | None:
    stored = snapshot.get(app_record_key(name))
    try:
        return None if stored is None else msgspec.msgpack.decode(stored, type=AppRecord)
    except UNDECODABLE as damage:
        raise StoreError(f"the record of app {name!r} is damaged: {damage}") from damage


def _write(txn: Transaction, name: str, record: AppRecord) -> None:
    txn.put(app_record_key(name), msgspec.msgpack.encode(record))


def _discard(txn: Transaction, name: str, number: int) -> None:
    """Remove an app's record; its number becomes rubbish."""
    txn.delete(app_record_key(name))
    txn.put(_rubbish_key(number), b"")


def _rubbish_key(number: int) -> bytes:
    return RUBBISH_PREFIX + number.to_bytes(4, "big")


def _next_number(txn: Transaction) -> int:
    number = int.from_bytes(txn.get(LAST_APP_KEY) or b"", "big") + 1
    txn.put(LAST_APP_KEY, number.to_bytes(4, "big"))
    return number
