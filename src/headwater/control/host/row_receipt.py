"""Rows of other nodes on their way into a queue here: what is looked at, and what is kept of it."""

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
    """Up to which number all is here, and the queue if it grew."""

    until: int
    lacks_schema: bool = False
    record: QueueRecord | None = None


class Receiving:
    """Takes rows into the queues of a node."""

    def __init__(self, dock: Dock, apps: Mapping[str, OpenApp]) -> None:
        """Take them into this store; `apps` are those that have queues there."""
        self._dock, self._apps = dock, apps
        self._admitting = Admitting()

    def take(self, app: OpenApp, sending: m.Sending, stretch: OutboxStretch, room: int) -> TakenRows:
        """Store a stretch if there is room for it; raises StoreError if it cannot be what it says.

        Of one that is not taken nothing is read or kept: its schemas and the name of its queues are made up easily.
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
        """Put a stretch that was looked at, and the schemas of its rows."""
        with self._dock.store.write() as txn:
            instance = InstanceId(app.id, sending.instance)
            received, record = receive(txn, instance, sending.origin, sending.base, stretch)
            more = self._keep_schemas(txn, app, schemas) if record is not None else 0
        app.schemas_bytes += more
        return TakenRows(max(received.until, sending.base), record=record)

    def _keep_schemas(self, txn: Transaction, app: OpenApp, schemas: dict[int, KnownSchema]) -> int:
        """Keep those that are not here yet, and return how many bytes they take; StoreError if it is too much."""
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
        """Return the schemas that entries name, as far as they are here or came along; what none names is not read."""
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
        schema.to_string()  # names are looked at when they are read, and may be no text
        known = KnownSchema.of(schema)
    except Exception as damage:  # also of those who have registered types of their own: they read what came along
        raise StoreError(f"what should be a schema is none: {damage}") from damage
    if known.identity != identity:
        raise StoreError(f"schema {identity:x} is not what its name says")
    return known
