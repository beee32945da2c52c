"""A turn: take waiting rows, run the chain, commit everything it changed at once.

The rows are read from a snapshot, computed on outside any transaction, and what came of them (outputs, state, counts,
how far the queue is emptied) is committed in one short transaction. Before it changes anything, it looks whether the
queue still stands where it stood when the rows were taken, and whether the node that gave the turn still owns the
store. So a turn that was given twice counts once, whoever is faster, and a worker of a dead node changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from headwater.dataflow.graph import Spread
from headwater.engine.schemas import KnownSchema, Schemas
from headwater.engine.store import (
    TERM_KEY,
    QueueRecord,
    Snapshot,
    Store,
    Transaction,
    append,
    counts_key,
    entries_prefix,
    entry_key,
    entry_sequence,
    queue_key,
    read_queue,
    state_key,
)
from headwater.model.batch import (
    Stamp,
    decode_batch,
    decode_entry,
    encode_entry,
    merge_stamps,
    share_stamps,
)
from headwater.model.errors import StoreError, StoreFull, UserCodeError
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import encode_key, group_of, keyed_rows, owner_of
from headwater.operators.chain import ChainResult, NamedOperator, OpenChain, show_row, unite
from headwater.operators.state import ReadState

TURN_BYTES_MAX: Final = 16 << 20  # of input; bounds a worker's memory whatever the consumption policy says
STORE_FULL: Final = "store full"
ENTRIES_MAX: Final = 4_096  # per turn: reading thousands of one-row entries must not hold a snapshot for long


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where the rows of a port go: the queues of the next chain, and how rows are spread over them."""

    spread: Spread
    key: tuple[str, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True)
class ChainPlan:
    """All that a worker needs to run one chain. Kept in the store, read once per worker."""

    app: AppId
    flow: str
    operators: tuple[NamedOperator, ...]
    numbers: tuple[int, ...]  # of the operators among the flow's declarations: names their state
    outlets: tuple[tuple[Outlet, ...], ...]  # for each port of the last operator
    errors: Mapping[int, tuple[Outlet, ...]]  # for operators with dead letters, by index in the chain
    first_instance: int

    def open(self) -> OpenChain:
        """Return the chain, ready to run."""
        return OpenChain(self.flow, self.operators)


class Counts(msgspec.Struct, array_like=True):
    """What an instance did to its rows since the app began; the ledger adds these up."""

    operators: list[tuple[int, int, int]]  # taken, made, dead; for each operator of the chain
    copied: int = 0  # rows put once more because a port has several readers
    unread: int = 0  # rows of a port that nobody reads
    unread_dead: int = 0  # dead letters that nobody reads


_COUNTS_DECODER: Final = msgspec.msgpack.Decoder(Counts)


def read_counts(snapshot: Snapshot, instance: InstanceId, operators: int) -> Counts:
    """Return the counts of an instance."""
    packed = snapshot.get(counts_key(instance))
    return Counts([(0, 0, 0)] * operators) if packed is None else _COUNTS_DECODER.decode(packed)


class Filled(msgspec.Struct, array_like=True, frozen=True):
    """A queue that got rows: its counts afterwards."""

    instance: int
    put_rows: int
    put_bytes: int


class Trouble(msgspec.Struct, array_like=True, frozen=True):
    """A user's function raised on a row, and the flow is to stop."""

    operator: str
    error: str
    line: str
    row: str


class TurnReport(msgspec.Struct, array_like=True, frozen=True):
    """What a turn did, in counts that only grow, so that a report lost or heard twice does no harm."""

    app: int
    instance: int
    rows: int  # taken by this turn; 0 if nothing was committed
    taken_rows: int
    gone_bytes: int
    filled: list[Filled]
    made_rows: int
    queue_us: int  # T_Q, T_S and T_C, summed over the rows of the turn
    schedule_us: int
    compute_us: int
    turn_us: int
    trouble: Trouble | None = None
    note: str = ""  # why nothing was committed, if that is nobody's fault: superseded, store full


@dataclass(slots=True)
class Taken:
    """Rows taken from a queue, with what is needed to commit or forget them."""

    instance: InstanceId
    record: QueueRecord
    batch: pa.RecordBatch | None
    stamps: tuple[Stamp, ...]
    sequences: list[int]  # entries used up
    head_sequence: int  # where the head stands after the turn
    head_offset: int
    bytes_gone: int
    rows: int = 0
    queue_us: int = 0
    schedule_us: int = 0


@dataclass(slots=True)
class Prepared:
    """A turn that has been computed and needs only its commit."""

    taken: Taken
    plan: ChainPlan
    result: ChainResult
    puts: list[tuple[int, int, bytes, KnownSchema]]  # instance, rows, encoded entry, its schema
    copied: int = 0
    unread: int = 0
    unread_dead: int = 0
    compute_us: int = 0


def take(snapshot: Snapshot, instance: InstanceId, rows_max: int, schemas: Schemas, now_us: int) -> Taken:
    """Read up to so many waiting rows from the head of a queue."""
    record = read_queue(snapshot, instance)
    taken = Taken(instance, record, None, (), [], record.head_sequence, record.head_offset, 0)
    batches: list[pa.RecordBatch] = []
    stamps: list[tuple[Stamp, ...]] = []
    first: KnownSchema | None = None
    for sequence, encoded in _waiting_entries(snapshot, instance, record):
        offset = record.head_offset if sequence == record.head_sequence else 0
        entry = decode_entry(encoded)
        wanted = min(entry.rows - offset, rows_max - taken.rows)
        known = schemas.find(snapshot, entry.schema_id)
        if not schemas.fit(first := first or known, known):
            break
        batch = decode_batch(entry.payload, known.schema, whole=known.whole)
        batches.append(batch if wanted == entry.rows else batch.slice(offset, wanted))
        stamps.append(entry.stamps if wanted == entry.rows else share_stamps(entry.stamps, wanted, entry.rows))
        _account(taken, entry.enqueued_us, wanted, record.last_end_us, now_us)
        if offset + wanted == entry.rows:
            taken.sequences.append(sequence)
            taken.head_sequence, taken.head_offset = sequence + 1, 0
            taken.bytes_gone += len(encoded)
        else:
            taken.head_sequence, taken.head_offset = sequence, offset + wanted
        if taken.rows >= rows_max or taken.bytes_gone >= TURN_BYTES_MAX or len(batches) >= ENTRIES_MAX:
            break
    if batches:
        taken.batch = unite(batches)
        taken.stamps = stamps[0] if len(stamps) == 1 else merge_stamps(stamps)
    return taken


def _waiting_entries(snapshot: Snapshot, instance: InstanceId, record: QueueRecord) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a queue from its head on. Where none was shed they have no gaps, and need no cursor."""
    if record.shed_rows == 0:
        for sequence in range(record.head_sequence, record.next_sequence):
            encoded = snapshot.get(entry_key(instance, sequence))
            if encoded is None:
                raise StoreError(f"entry {sequence} of queue {instance} is missing from the store")
            yield sequence, encoded
        return
    for key, encoded in snapshot.scan(entries_prefix(instance), entry_key(instance, record.head_sequence)):
        yield entry_sequence(key), encoded


def _account(taken: Taken, enqueued_us: int, rows: int, last_end_us: int, now_us: int) -> None:
    """Tell the time in the queue (behind an earlier turn) from the time at its head (waiting to be scheduled)."""
    at_head_us = max(enqueued_us, last_end_us)
    taken.rows += rows
    taken.queue_us += rows * max(0, at_head_us - enqueued_us)
    taken.schedule_us += rows * max(0, now_us - at_head_us)


def prepare(
    plan: ChainPlan,
    chain: OpenChain,
    taken: Taken,
    store: Store,
    schemas: Schemas,
    clock: Callable[[], int],
    condemn: str,
) -> Prepared:
    """Run the chain on what was taken and lay out what is to be committed; raises UserCodeError to stop the flow."""
    assert taken.batch is not None
    began_us = clock()
    if condemn:
        result = chain.condemn(taken.batch, condemn)
    else:
        result = chain.run(taken.batch, lambda index: _reader(store, plan.app, plan.numbers[index]))
    ended_us = clock()
    prepared = Prepared(taken, plan, result, [], compute_us=ended_us - began_us)
    for port, batch in enumerate(result.outputs):
        if batch is not None:
            _check_key(plan, plan.outlets[port], batch)
            _emit(prepared, plan.outlets[port], batch, schemas, ended_us, dead=False)
    for index, batches in result.dead.items():
        _emit(prepared, plan.errors.get(index, ()), unite(batches), schemas, ended_us, dead=True)
    return prepared


def _reader(store: Store, app: AppId, operator: int) -> ReadState:
    def read(keys: Sequence[bytes]) -> list[bytes | None]:
        with store.read() as snapshot:
            return [snapshot.get(state_key(app, operator, key)) for key in keys]

    return read


def _emit(
    prepared: Prepared, outlets: Sequence[Outlet], batch: pa.RecordBatch, schemas: Schemas, now_us: int, *, dead: bool
) -> None:
    rows = batch.num_rows
    prepared.copied += rows * max(0, len(outlets) - 1)
    if not outlets:
        prepared.unread += rows
        prepared.unread_dead += rows if dead else 0
    taken = prepared.taken
    own_index = taken.instance.number - prepared.plan.first_instance
    known = schemas.known(batch.schema)
    for outlet in outlets:
        for target, part in spread(outlet, batch, own_index, taken.record.turns):
            stamps = share_stamps(taken.stamps, part.num_rows, rows)
            encoded = encode_entry(known.identity, now_us, part.num_rows, stamps, known.encode(part))
            prepared.puts.append((target, part.num_rows, encoded, known))


def spread(outlet: Outlet, batch: pa.RecordBatch, own_index: int, turn: int) -> list[tuple[int, pa.RecordBatch]]:
    """Return which rows go to which instance."""
    targets = outlet.targets
    if len(targets) == 1:
        return [(targets[0], batch)]
    if outlet.spread is Spread.FORWARD:
        return [(targets[own_index], batch)]
    if outlet.spread is Spread.BALANCE:
        return [(targets[turn % len(targets)], batch)]
    return _by_key(outlet, batch)


def _check_key(plan: ChainPlan, outlets: Sequence[Outlet], batch: pa.RecordBatch) -> None:
    for outlet in outlets:
        for column in outlet.key:
            if column not in batch.schema.names:
                error = f"its rows are spread by column {column!r}, but have only: {', '.join(batch.schema.names)}"
                row = show_row(batch.slice(0, 1).to_pylist()[0])
                raise UserCodeError(plan.flow, plan.operators[-1].name, error, "the key_by behind it", row)


def _by_key(outlet: Outlet, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    rows = keyed_rows(batch, outlet.key)
    count = len(outlet.targets)
    owners = np.fromiter((owner_of(group_of(encode_key(key)), count) for key in rows.keys), np.int64, len(rows.keys))
    of_row = owners[rows.codes]
    present = np.unique(of_row)
    if len(present) == 1:
        return [(outlet.targets[int(present[0])], batch)]
    return [(outlet.targets[int(owner)], batch.take(pa.array(np.flatnonzero(of_row == owner)))) for owner in present]


def commit(store: Store, term: bytes, prepared: Sequence[Prepared], schemas: Schemas, now_us: int) -> list[TurnReport]:
    """Commit the turns together; those that were superseded meanwhile are left out and say so."""
    with store.write() as txn:
        if txn.get(TERM_KEY) != term:
            return [_superseded(one.taken) for one in prepared]
        return [_commit_one(txn, one, schemas, now_us) for one in prepared]


def _commit_one(txn: Transaction, prepared: Prepared, schemas: Schemas, now_us: int) -> TurnReport:
    taken, plan = prepared.taken, prepared.plan
    record = read_queue(txn, taken.instance)
    if not _still_there(txn, taken, record):
        return _superseded(taken)
    record = advance(txn, taken, record, now_us)
    _commit_state(txn, plan, prepared.result)
    made_rows = _commit_counts(txn, prepared)
    filled = _commit_puts(txn, plan.app, prepared.puts, schemas)
    return TurnReport(
        app=plan.app,
        instance=taken.instance.number,
        rows=taken.rows,
        taken_rows=record.taken_rows + record.shed_rows,
        gone_bytes=record.gone_bytes,
        filled=filled,
        made_rows=made_rows,
        queue_us=taken.queue_us,
        schedule_us=taken.schedule_us,
        compute_us=prepared.compute_us * taken.rows,
        turn_us=prepared.compute_us,
    )


def advance(txn: Transaction, taken: Taken, record: QueueRecord, now_us: int) -> QueueRecord:
    """Move the head of a queue behind what was taken and return its new record."""
    for sequence in taken.sequences:
        txn.delete(entry_key(taken.instance, sequence))
    record = QueueRecord(
        record.next_sequence,
        record.put_rows,
        record.put_bytes,
        taken.head_sequence,
        taken.head_offset,
        record.taken_rows + taken.rows,
        record.gone_bytes + taken.bytes_gone,
        record.shed_rows,
        now_us,
        record.turns + 1,
    )
    txn.put(queue_key(taken.instance), record.pack())
    return record


def _still_there(txn: Transaction, taken: Taken, record: QueueRecord) -> bool:
    before = taken.record
    if (record.head_sequence, record.head_offset) != (before.head_sequence, before.head_offset):
        return False
    if record.shed_rows == before.shed_rows:
        return True
    touched = [*taken.sequences, taken.head_sequence] if taken.head_offset else taken.sequences
    return all(txn.get(entry_key(taken.instance, sequence)) is not None for sequence in touched)


def _commit_state(txn: Transaction, plan: ChainPlan, result: ChainResult) -> None:
    for index, changes in result.state.items():
        for key, value in changes.items():
            where = state_key(plan.app, plan.numbers[index], key)
            if value is None:
                txn.delete(where)
            else:
                txn.put(where, value)


def _commit_counts(txn: Transaction, prepared: Prepared) -> int:
    instance = prepared.taken.instance
    counts = read_counts(txn, instance, len(prepared.plan.operators))
    counts.operators = [
        (taken + new.taken, made + new.made, dead + new.dead)
        for (taken, made, dead), new in zip(counts.operators, prepared.result.counts, strict=True)
    ]
    counts.copied += prepared.copied
    counts.unread += prepared.unread
    counts.unread_dead += prepared.unread_dead
    txn.put(counts_key(instance), msgspec.msgpack.encode(counts))
    return prepared.result.counts[-1].made


def _commit_puts(
    txn: Transaction, app: AppId, puts: Sequence[tuple[int, int, bytes, KnownSchema]], schemas: Schemas
) -> list[Filled]:
    by_target: dict[int, list[tuple[int, bytes]]] = {}
    for target, rows, encoded, known in puts:
        schemas.ensure(txn, known)
        by_target.setdefault(target, []).append((rows, encoded))
    filled = []
    for target, entries in by_target.items():
        record = append(txn, InstanceId(app, target), entries)
        filled.append(Filled(target, record.put_rows, record.put_bytes))
    return filled


def _superseded(taken: Taken) -> TurnReport:
    return _nothing(taken, note="superseded")


def _nothing(taken: Taken, *, trouble: Trouble | None = None, note: str = "") -> TurnReport:
    record = taken.record
    return TurnReport(
        app=taken.instance.app,
        instance=taken.instance.number,
        rows=0,
        taken_rows=record.taken_rows + record.shed_rows,
        gone_bytes=record.gone_bytes,
        filled=[],
        made_rows=0,
        queue_us=0,
        schedule_us=0,
        compute_us=0,
        turn_us=0,
        trouble=trouble,
        note=note,
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """One instance's part of a turn."""

    instance: InstanceId
    rows_max: int
    condemn: str = ""  # not empty: do not run these rows, they kill workers; say why


@dataclass(slots=True)
class TurnRunner:
    """Runs turns against a store; the same in a Spark worker, in a thread and in a test."""

    store: Store
    term: bytes
    chains: Mapping[InstanceId, tuple[ChainPlan, OpenChain]]
    clock: Callable[[], int]
    schemas: Schemas = field(default_factory=Schemas)

    def run(self, assignments: Sequence[Assignment]) -> list[TurnReport]:
        """Take, compute and commit; rows that stop a flow are reported, and do not hold up the other assignments."""
        reports: list[TurnReport] = []
        prepared: list[Prepared] = []
        filled: set[InstanceId] = set()
        for assignment in assignments:
            if assignment.instance in filled:  # it follows rows that this turn made: they have to be there first
                reports += self._commit(prepared)
                prepared, filled = [], set()
            plan, chain = self.chains[assignment.instance]
            with self.store.read() as snapshot:
                taken = take(snapshot, assignment.instance, assignment.rows_max, self.schemas, self.clock())
            if taken.batch is None:
                reports.append(_nothing(taken, note="empty"))
                continue
            try:
                done = prepare(plan, chain, taken, self.store, self.schemas, self.clock, assignment.condemn)
            except UserCodeError as failure:
                trouble = Trouble(failure.operator, failure.error, failure.line, failure.row)
                reports.append(_nothing(taken, trouble=trouble))
            else:
                prepared.append(done)
                filled.update(InstanceId(plan.app, target) for target, _, _, _ in done.puts)
        if prepared:
            reports += self._commit(prepared)
        return reports

    def _commit(self, prepared: Sequence[Prepared]) -> list[TurnReport]:
        try:
            return commit(self.store, self.term, prepared, self.schemas, self.clock())
        except StoreFull as full:  # nothing was changed; the rows wait where they are until there is room
            return [_nothing(one.taken, note=f"{STORE_FULL}: {full}") for one in prepared]
