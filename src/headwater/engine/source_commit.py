"""How a source's rows get into the first queues: laid out outside a transaction, stored in one with the position."""

from collections.abc import Sequence
from dataclasses import replace

from headwater.dataflow.connectors import Rows
from headwater.engine.entry_split import cut, is_large, sieve
from headwater.engine.plans import Outlet, channel_of
from headwater.engine.positions import ConnectorRecord, write_record
from headwater.engine.queue_records import QueueRecord, append
from headwater.engine.schemas import Schemas
from headwater.engine.spreading import spread
from headwater.model.batch import Mark, Stamp, encode_entry, encode_mark, share_stamps
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Transaction
from headwater.model.time import END_OF_TIME

Put = tuple[int, int, bytes]  # instance, rows, entry


def without_giants(rows: Rows) -> Rows:
    """Remove and count the rows that are too large for any queue."""
    if not is_large(rows.batch):
        return rows
    fitting, giants = sieve(rows.batch)
    return replace(rows, batch=fitting, too_large=rows.too_large + len(giants)) if giants else rows


def lay_out(
    rows: Rows,
    outlets: Sequence[Outlet],
    number: int,
    schemas: Schemas,
    *,
    batches: int,
    stamps: tuple[Stamp, ...],
    now_us: int,
) -> list[Put]:
    """Return the entries of a source's rows for the queues behind it; the source is declaration `number`."""
    batch = rows.batch
    if batch.num_rows == 0:
        return []
    known = schemas.known(batch.schema)
    large = is_large(batch)
    puts = []
    for outlet in outlets:
        mark = Mark(channel_of(number, 0), outlet.source)
        for target, part in spread(outlet, batch, 0, batches):
            marks = share_stamps(stamps, part.num_rows, batch.num_rows)
            pieces = cut(part) if large else [part]
            for piece in pieces:
                stamped = marks if piece is pieces[-1] else ()
                encoded = encode_entry(known.identity, now_us, piece.num_rows, stamped, known.encode(piece), mark)
                puts.append((target, piece.num_rows, encoded))
    return puts


def lay_out_end(outlets: Sequence[Outlet], number: int, now_us: int) -> list[Put]:
    """Return the marks of the end of time, for operators that need watermarks."""
    mark = Mark(channel_of(number, 0), 0, END_OF_TIME)
    return [
        (target, 0, encode_mark(now_us, mark._replace(source=outlet.source)))
        for outlet in outlets
        if outlet.marks
        for target in outlet.targets
    ]


def put_all(txn: Transaction, app: AppId, puts: Sequence[Put]) -> list[tuple[InstanceId, QueueRecord]]:
    """Append the entries, and return the queues that grew."""
    by_target: dict[int, list[tuple[int, bytes]]] = {}
    for target, rows, encoded in puts:
        by_target.setdefault(target, []).append((rows, encoded))
    instances = [(InstanceId(app, target), entries) for target, entries in by_target.items()]
    return [(instance, append(txn, instance, entries)) for instance, entries in instances]


def keep_position(
    txn: Transaction, app: AppId, number: int, before: ConnectorRecord, rows: Rows, outlets: int
) -> ConnectorRecord:
    """Record a source's position and counts once these rows are stored for so many outlets."""
    count = rows.batch.num_rows
    after = ConnectorRecord(
        position=rows.position,
        stored=before.stored + count,
        copied=before.copied + count * max(0, outlets - 1),
        unread=before.unread + (0 if outlets else count),
        unparsable=before.unparsable + rows.unparsable,
        refused=before.refused + rows.refused,
        too_large=before.too_large + rows.too_large,
    )
    write_record(txn, app, number, after)
    return after
