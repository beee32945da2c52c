"""Schemas by name: each is stored once, and what follows from it is worked out once per process."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.engine.store import Snapshot, Transaction, schema_key
from headwater.model.batch import encode_batch, needs_whole, schema_id
from headwater.model.errors import StoreError

RECENT_SCHEMAS: Final = 3
SCHEMAS_MAX: Final = 10_000  # known at a time; a flow that makes up columns row by row must not fill the memory


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema and what follows from it."""

    schema: pa.Schema
    identity: int
    whole: bool

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes of a batch that has this schema."""
        return encode_batch(batch, whole=self.whole)


class Schemas:
    """Schemas known to this process. What follows from a schema is worked out once, not for every batch."""

    def __init__(self) -> None:
        """Know none."""
        self._by_identity: dict[int, KnownSchema] = {}
        self._by_schema: dict[pa.Schema, KnownSchema] = {}
        self._recent: list[KnownSchema] = []
        self._stored: set[int] = set()
        self._drafts: tuple[Transaction | None, set[int]] = (None, set())  # what the last transaction has put
        self._fits: dict[tuple[int, int], bool] = {}

    def known(self, schema: pa.Schema) -> KnownSchema:
        """Return what is known of a schema; comparing with the last few is several times cheaper than hashing one."""
        for recent in self._recent:
            if schema.equals(recent.schema, check_metadata=True):
                return recent
        found = self._by_schema.get(schema)
        if found is None:
            if len(self._by_schema) >= SCHEMAS_MAX:
                self._by_schema.clear()
            found = self._by_schema[schema] = KnownSchema(schema, schema_id(schema), needs_whole(schema))
        self._recent = [found, *self._recent[: RECENT_SCHEMAS - 1]]
        return found

    def find(self, snapshot: Snapshot, identity: int) -> KnownSchema:
        """Return the schema of this identity."""
        found = self._by_identity.get(identity)
        if found is None:
            stored = snapshot.get(schema_key(identity))
            if stored is None:
                raise StoreError(f"the store lacks schema {identity:x}, which a batch in it refers to")
            if len(self._by_identity) >= SCHEMAS_MAX:
                self._by_identity.clear()
            found = self._by_identity[identity] = self.known(pa.ipc.read_schema(pa.py_buffer(stored)))
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

    def ensure(self, txn: Transaction, known: KnownSchema) -> None:
        """Store a schema if it is not there yet; one seen there stays, whereas one just put may still be undone."""
        if known.identity in self._stored:
            return
        key = schema_key(known.identity)
        if self._drafts[0] is not txn:
            self._drafts = (txn, set())
        if txn.get(key) is None:
            txn.put(key, known.schema.serialize().to_pybytes())
            self._drafts[1].add(known.identity)
        elif known.identity not in self._drafts[1] and len(self._stored) < SCHEMAS_MAX:
            self._stored.add(known.identity)


def _unify(one: pa.Schema, other: pa.Schema) -> bool:
    try:
        pa.unify_schemas([one, other], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return False
    return True
