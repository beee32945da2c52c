"""The receiver's side of a channel: validate rows of another node and store them in a queue here."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from headwater.control.host.engine_view import Dock, OpenApp
from headwater.control.messages import row_messages as m
from headwater.engine.batch_validation import Admitting, check_header
from headwater.engine.channels import OutboxStretch, expected_from, receive
from headwater.engine.measuring import check_schema
from headwater.engine.queue_records import QueueRecord
from headwater.engine.schemas import KnownSchema
from headwater.model.batch import Entry, decode_entry
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import schema_key

SCHEMAS_OF_APP_MAX: Final = 16 << 20  # bytes of the schemas of one app's rows: hundreds, each of a thousand columns
SCHEMAS_OF_NODE_MAX: Final = 128 << 20  # of all apps


class TakenRows(NamedTuple):
    """The number up to which all rows are stored, and the queue's record if it grew."""

    until: int
    lacks_schema: bool = False
    record: QueueRecord | None = None


class Receiving:
    """Takes rows into the queues of a node; `apps` are those with queues in the dock's store."""

    def __init__(self, dock: Dock, apps: Mapping[str, OpenApp]) -> None:
        self._dock, self._apps = dock, apps
        self._admitting = Admitting()

    def take(self, app: OpenApp, sending: m.Sending, stretch: OutboxStretch, room: int) -> TakenRows:
        """Store a stretch if it is the next one and there is room; raises StoreError if it is malformed.

        A stretch that is not taken is neither decoded nor stored, since its schemas and its origin may be forged.
        """
        instance = InstanceId(app.id, sending.instance)
        with self._dock.store.read() as snapshot:
            expected = expected_from(snapshot, instance, sending.origin, sending.base)
            if not expected.takes(stretch) or room < stretch.size_bytes:
                return TakenRows(expected.number)
            entries = [decode_entry(encoded) for _, encoded in stretch.entries]
            schemas = self._schemas_of(snapshot, app.id, sending, entries)
        if any(entry.rows and entry.schema_id not in schemas for entry in entries):
            return TakenRows(expected.number, lacks_schema=True)
        for entry in entries:
            if entry.rows:
                self._admitting.check(entry, schemas[entry.schema_id])
            else:
                check_header(entry)
        return self._store(app, sending, stretch, schemas)

    def _store(
        self, app: OpenApp, sending: m.Sending, stretch: OutboxStretch, schemas: dict[int, KnownSchema]
    ) -> TakenRows:
        """Store a validated stretch and the schemas of its rows in one transaction."""
        with self._dock.store.write() as txn:
            instance = InstanceId(app.id, sending.instance)
            received, record = receive(txn, instance, sending.origin, sending.base, stretch)
            more = self._keep_schemas(txn, app, schemas) if record is not None else 0
        app.schemas_bytes += more
        return TakenRows(max(received.until, sending.base), record=record)

    def _keep_schemas(self, txn: Transaction, app: OpenApp, schemas: dict[int, KnownSchema]) -> int:
        """Store the schemas that are not here yet and return their bytes; StoreError above the limits."""
        more = sum(known.size_bytes for one, known in schemas.items() if txn.get(schema_key(app.id, one)) is None)
        if more and app.schemas_bytes + more > SCHEMAS_OF_APP_MAX:
            raise StoreError(f"the schemas of its rows have more than {SCHEMAS_OF_APP_MAX >> 20} MiB")
        if more and sum(one.schemas_bytes for one in self._apps.values()) + more > SCHEMAS_OF_NODE_MAX:
            raise StoreError(f"the schemas of all apps here have more than {SCHEMAS_OF_NODE_MAX >> 20} MiB")
        for known in schemas.values():
            self._dock.schemas.ensure(txn, app.id, known)
        return more

    def _schemas_of(
        self, snapshot: Snapshot, app: AppId, sending: m.Sending, entries: Sequence[Entry]
    ) -> dict[int, KnownSchema]:
        """Return the schemas that entries name, from the store or the message; no others are decoded."""
        brought = dict(sending.schemas)
        found = {}
        for identity in {entry.schema_id for entry in entries if entry.rows}:
            if snapshot.get(schema_key(app, identity)) is not None:
                found[identity] = self._dock.schemas.find(snapshot, app, identity)
            elif (encoded := brought.get(m.schema_name(identity))) is not None:
                found[identity] = _read_schema(identity, encoded)
        return found


def _read_schema(identity: int, encoded: bytes) -> KnownSchema:
    try:
        check_schema(encoded)
        schema = pa.ipc.read_schema(pa.py_buffer(encoded))
        schema.to_string()  # pyarrow decodes names late, and they may not be UTF-8
        known = KnownSchema.of(schema)
    except Exception as damage:  # any: extension types that an app registered decode their own metadata
        raise StoreError(f"what should be a schema is none: {damage}") from damage
    if known.identity != identity:
        raise StoreError(f"schema {identity:x} is not what its name says")
    return known
