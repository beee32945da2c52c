"""A source's or sink's record in the store: its position, and a source's counts for the ledger."""

from typing import Final

import msgspec

from headwater.dataflow.connectors import Position
from headwater.engine.ledger import SourceCounts
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import StoreError
from headwater.model.ids import AppId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import position_key


class ConnectorRecord(msgspec.Struct, array_like=True, frozen=True):
    """One connector's record."""

    position: Position | None = None
    stored: int = 0
    copied: int = 0
    unread: int = 0
    unparsable: int = 0
    refused: int = 0
    too_large: int = 0

    def counts(self) -> SourceCounts:
        """Return the counts for the ledger."""
        return SourceCounts(self.stored, self.copied, self.unread, self.unparsable, self.refused, self.too_large)


_DECODER: Final = msgspec.msgpack.Decoder(ConnectorRecord)


def read_record(snapshot: Snapshot, app: AppId, number: int) -> ConnectorRecord:
    """Return the record of a connector; empty if it never ran."""
    packed = snapshot.get(position_key(app, number))
    try:
        return ConnectorRecord() if packed is None else _DECODER.decode(packed)
    except UNDECODABLE as damage:
        raise StoreError(f"the position of connector {number} of app {app} is damaged: {damage}") from damage


def write_record(txn: Transaction, app: AppId, number: int, record: ConnectorRecord) -> None:
    """Keep the record of a connector."""
    txn.put(position_key(app, number), msgspec.msgpack.encode(record))
