"""The apps that a store knows: the number under which each keeps what it has, its structure, and its code."""

import itertools
from typing import Final

import msgspec

from headwater.dataflow.graph import Graph
from headwater.engine.ledger import Ledger, read_ledger
from headwater.engine.plans import plan_chain
from headwater.engine.positions import read_record
from headwater.engine.store import Transaction, app_prefixes, app_record_key, code_key, code_prefix
from headwater.model.errors import FlowError
from headwater.model.ids import AppId
from headwater.runtime.app import App
from headwater.runtime.code import pack_plan
from headwater.runtime.store import LmdbStore

LAST_NUMBER: Final = b"!apps"
SLICE: Final = 1_000  # keys of one commit, which others wait for


class AppRecord(msgspec.Struct, array_like=True, frozen=True):
    """An app as the store knows it."""

    number: int
    fingerprint: str


class Registry:
    """The apps of one store."""

    def __init__(self, store: LmdbStore) -> None:
        """Look at this store."""
        self._store = store
        self._code_numbers = itertools.count(1)

    def register(self, graph: Graph, kept_as: str = "") -> tuple[AppId, tuple[int, ...]]:
        """Find or make the app's place in the store, and put its code there."""
        place = app_record_key(kept_as or graph.name)
        with self._store.write() as txn:
            stored = txn.get(place)
            if stored is None:
                record = AppRecord(_next_number(txn), graph.fingerprint)
                txn.put(place, msgspec.msgpack.encode(record))
            else:
                record = msgspec.msgpack.decode(stored, type=AppRecord)
            if record.fingerprint != graph.fingerprint:
                raise FlowError(
                    f"the store holds flow {graph.name!r} with another structure, whose rows and state do not fit; "
                    "give the flow another name, or use another --store"
                )
            app = AppId(record.number)
            return app, self._put_code(txn, app, graph)

    def _put_code(self, txn: Transaction, app: AppId, graph: Graph) -> tuple[int, ...]:
        for key in [key for key, _ in txn.scan(code_prefix(app))]:
            txn.delete(key)
        codes = tuple(next(self._code_numbers) for _ in graph.chains)
        for number, chain in zip(codes, graph.chains, strict=True):
            txn.put(code_key(app, number), pack_plan(plan_chain(graph, app, chain)))
        return codes

    def delete(self, app: App) -> None:
        """Delete everything the store has of an app that runs no more."""
        with self._store.write() as txn:
            txn.delete(app_record_key(app.kept_as or app.name))
        for prefix in app_prefixes(app.id):
            while self._delete_some(prefix):
                pass

    def _delete_some(self, prefix: bytes) -> bool:
        """Delete a slice, so that no commit is long; return whether there may be more."""
        with self._store.write() as txn:
            keys = [key for key, _ in itertools.islice(txn.scan(prefix), SLICE)]
            for key in keys:
                txn.delete(key)
        return len(keys) == SLICE

    def ledger(self, app: App) -> Ledger:
        """Add up an app's ledger as of now."""
        numbers = {declared.name: number for number, declared in enumerate(app.graph.declarations)}
        with self._store.read() as snapshot:
            counts = [read_record(snapshot, app.id, numbers[name]).counts() for name in app.graph.sources]
            return read_ledger(snapshot, app.id, app.graph, counts)


def _next_number(txn: Transaction) -> int:
    number = int.from_bytes(txn.get(LAST_NUMBER) or b"", "big") + 1
    txn.put(LAST_NUMBER, number.to_bytes(4, "big"))
    return number
