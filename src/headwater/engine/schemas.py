"""Schemas by name: each is stored once per app, and what is derived from it is cached per process."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.model.batch import encode_batch, named_by, needs_whole
from headwater.model.errors import StoreError
from headwater.model.ids import AppId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import schema_key, schemas_prefix

RECENT_SCHEMAS: Final = 3
SCHEMAS_MAX: Final = 10_000  # known at a time; a flow that makes up columns row by row must not fill the memory
SCHEMAS_BYTES_MAX: Final = 16 << 20  # of these as they are stored; in memory a schema takes some three times as much


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema with what is derived from it."""

    schema: pa.Schema
    identity: int
    whole: bool
    size_bytes: int  # as it is stored

    @classmethod
    def of(cls, schema: pa.Schema) -> "KnownSchema":
        """Derive the rest from a schema."""
        encoded = schema.serialize().to_pybytes()
        return cls(schema, named_by(encoded), needs_whole(schema), len(encoded))

    def why_refused(self) -> str | None:
        """Return why no queue takes rows of this schema, or None: an instance elsewhere could never be sent it."""
        if self.size_bytes <= SCHEMA_BYTES_MAX:
            return None
        return (
            f"names and types of {len(self.schema.names):,} columns take {self.size_bytes:,} bytes; more than "
            f"{SCHEMA_BYTES_MAX:,} cannot travel between nodes: keep fewer columns, or put them into a map or a list"
        )

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes of a batch that has this schema."""
        return encode_batch(batch, whole=self.whole)


class Schemas:
    """A cache of schemas, so that nothing is derived from them per batch."""

    def __init__(self) -> None:
        self._by_identity: dict[int, KnownSchema] = {}
        self._by_schema: dict[pa.Schema, KnownSchema] = {}
        self._bytes = 0  # of those by schema
        self._recent: list[KnownSchema] = []
        self._stored: set[tuple[AppId, int]] = set()
        self._drafts: tuple[Transaction | None, set[bytes]] = (None, set())  # what the last transaction has put
        self._fits: dict[tuple[int, int], bool] = {}

    def known(self, schema: pa.Schema) -> KnownSchema:
        """Return a schema with what is derived from it; to compare with the last few is cheaper than to hash."""
        for recent in self._recent:
            if schema.equals(recent.schema, check_metadata=True):
                return recent
        found = self._by_schema.get(schema)
        if found is None:
            found = KnownSchema.of(schema)
            if len(self._by_schema) >= SCHEMAS_MAX or self._bytes + found.size_bytes > SCHEMAS_BYTES_MAX:
                self._by_schema.clear()
                self._by_identity.clear()
                self._bytes = 0
            self._by_schema[schema] = found
            self._bytes += found.size_bytes
        self._recent = [found, *self._recent[: RECENT_SCHEMAS - 1]]
        return found

    def find(self, snapshot: Snapshot, app: AppId, identity: int) -> KnownSchema:
        """Return the schema of this name among an app's."""
        found = self._by_identity.get(identity)
        if found is None:
            stored = snapshot.get(schema_key(app, identity))
            if stored is None:
                raise StoreError(f"the store lacks schema {identity:x}, which a batch in it refers to")
            found = self.known(_read(stored))
            self._by_identity[identity] = found
        return found

    def fit(self, one: KnownSchema, other: KnownSchema) -> bool:
        """Whether rows of both schemas can be taken together: the wider type wins, but text is no number."""
        if one is other:
            return True
        pair = (one.identity, other.identity)
        if pair not in self._fits:
            if len(self._fits) >= SCHEMAS_MAX:
                self._fits.clear()
            self._fits[pair] = _unify(one.schema, other.schema)
        return self._fits[pair]

    def ensure(self, txn: Transaction, app: AppId, known: KnownSchema) -> None:
        """Store a schema of an app's rows unless it is stored.

        One found in the store stays as long as the app; one just put may be undone with its transaction.
        """
        if (app, known.identity) in self._stored:
            return
        key = schema_key(app, known.identity)
        if self._drafts[0] is not txn:
            self._drafts = (txn, set())
        if txn.get(key) is None:
            txn.put(key, known.schema.serialize().to_pybytes())
            self._drafts[1].add(key)
        elif key not in self._drafts[1] and len(self._stored) < SCHEMAS_MAX:
            self._stored.add((app, known.identity))


def schemas_bytes(snapshot: Snapshot, app: AppId) -> int:
    """Return how many bytes the schemas of an app's rows take in the store."""
    return sum(len(encoded) for _, encoded in snapshot.scan(schemas_prefix(app)))


def _read(stored: bytes) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(stored))
    except (pa.ArrowException, OSError, EOFError) as damage:
        raise StoreError(f"a schema of {len(stored)} bytes is damaged: {damage}") from damage


def _unify(one: pa.Schema, other: pa.Schema) -> bool:
    try:
        pa.unify_schemas([one, other], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return False
    return True
