"""Entries on their way into queues."""

from dataclasses import dataclass

import pyarrow as pa

from headwater.engine.schemas import KnownSchema
from headwater.model.batch import Mark, Stamp, encode_entry, encode_mark


@dataclass(slots=True)
class Put:
    """An entry for a queue. It is encoded late: one that the same turn takes again need not be encoded at all."""

    target: int
    rows: int
    enqueued_us: int
    mark: Mark
    batch: pa.RecordBatch | None = None  # None: a mark alone
    known: KnownSchema | None = None  # the batch's schema
    stamps: tuple[Stamp, ...] = ()
    in_hand: bool = False  # a later part of the same turn has taken it, so it is not stored
    _encoded: bytes | None = None

    def encoded(self) -> bytes:
        """Return the entry's bytes, which are made once."""
        if self._encoded is None:
            self._encoded = self._encode()
        return self._encoded

    def _encode(self) -> bytes:
        if self.batch is None or self.known is None:
            return encode_mark(self.enqueued_us, self.mark)
        payload = self.known.encode(self.batch)
        return encode_entry(self.known.identity, self.enqueued_us, self.rows, self.stamps, payload, self.mark)
