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
from headwater.engine.keyed_state import Known, StateMemory, StoredState
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
    state_prefix,
    times_key,
)
from headwater.model.batch import (
    Mark,
    Stamp,
    decode_batch,
    decode_entry,
    encode_entry,
    encode_mark,
    merge_stamps,
    share_stamps,
)
from headwater.model.errors import Conflict, StoreError, StoreFull, UserCodeError
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import KEY_GROUPS, KeyGroups, groups_of, keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.chain import (
    ChainResult,
    Emission,
    NamedOperator,
    OpenChain,
    Segment,
    Turnover,
    show_row,
    unite,
)
from headwater.operators.watermarks import OperatorTime, WithWatermark

TURN_BYTES_MAX: Final = 16 << 20  # of input; bounds a worker's memory whatever the consumption policy says
STORE_FULL: Final = "store full"
LATE: Final = "late"  # the ports on which late rows leave begin like this
READ_AHEAD: Final = 16  # entries that may be read in vain: several microseconds here, a round trip saved elsewhere
COMMITS_MAX: Final = 5  # of one turn; where others write meanwhile, what was looked at may have changed each time
ENTRIES_MAX: Final = 4_096  # per turn: reading thousands of one-row entries must not hold a snapshot for long


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where the rows of a port go: the queues of the next chain, and how rows are spread over them."""

    spread: Spread
    key: tuple[str, ...]
    targets: tuple[int, ...]
    source: int = 0  # which input of the next chain's first operator
    marks: bool = False  # whether somebody there or further on has to know how far time has come


@dataclass(frozen=True, slots=True)
class Feed:
    """A route that leads to a chain: which input it is, and who sends on it."""

    source: int
    declaration: int
    senders: int
    one_to_one: bool  # instance i sends to instance i alone


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
    parallelism: int = 1
    timed: bool = False  # whether anything in the chain or behind it depends on time
    feeds: tuple["Feed", ...] = ()  # all that send rows and marks here

    @property
    def watches_clock(self) -> bool:
        """Whether it has to be given a turn though no row has ever come."""
        parts = (named.operator for named in self.operators)
        return any(isinstance(part, WithWatermark) and part.needs_clock for part in parts)

    def groups_of(self, instance: InstanceId) -> range:
        """Return the key groups that an instance owns."""
        return groups_of(instance.number - self.first_instance, self.parallelism)

    def channels_of(self, instance: InstanceId) -> list[tuple[int, int]]:
        """Return the channels, as input and sender, whose watermarks an instance has to wait for."""
        own = instance.number - self.first_instance
        return [
            (feed.source, channel_of(feed.declaration, index))
            for feed in self.feeds
            for index in ((own,) if feed.one_to_one else range(feed.senders))
        ]

    def sender(self, index: int, instance: InstanceId) -> int:
        """Return the number of the channel on which an operator of an instance sends."""
        return channel_of(self.numbers[index], instance.number - self.first_instance)

    def open(self) -> OpenChain:
        """Return the chain, ready to run."""
        return OpenChain(self.flow, self.operators)


def channel_of(declaration: int, index: int) -> int:
    """Return the number of the channel on which an instance of an operator, or a source, sends."""
    return declaration << 16 | index


class Times(msgspec.Struct, array_like=True):
    """How far time has come for an instance: by channel, and for each operator of its chain."""

    channels: dict[int, tuple[int, bool, bool]]  # input and sender -> watermark, idle, ended
    operators: list[OperatorTime]
    sent_us: int = BEGINNING_OF_TIME  # the last watermark that went out
    sent_idle: bool = False

    @property
    def wake_us(self) -> int | None:
        """When the instance wants a turn though nothing has arrived."""
        return min((one.wake_us for one in self.operators if one.wake_us is not None), default=None)

    def watermark(self, expected: Sequence[tuple[int, int]]) -> tuple[int, bool]:
        """Return the watermark over all channels, and whether all are idle: the minimum rules, the idle do not count.

        A channel that is idle may come back, so the end of the others is not the end of everything. While all that are
        left are idle, event time stands where the furthest of all has brought it.
        """
        found = [self.channels.get(_channel_key(*channel), _SILENT) for channel in expected]
        open_ones = [one for one in found if not one[2]]
        if not open_ones:
            return END_OF_TIME, False
        awake = [watermark_us for watermark_us, idle, _ in open_ones if not idle]
        return (min(awake), False) if awake else (max(one[0] for one in found), True)

    def note(self, mark: Mark) -> None:
        """Take note of a mark."""
        channel = _channel_key(mark.source, mark.sender)
        before_us, _, ended = self.channels.get(channel, _SILENT)
        if mark.watermark_us == END_OF_TIME:
            self.channels[channel] = (before_us, False, True)
        else:
            self.channels[channel] = (max(before_us, mark.watermark_us), mark.idle, ended)


_SILENT: Final = (BEGINNING_OF_TIME, False, False)


def _channel_key(source: int, sender: int) -> int:
    return source << 32 | sender


_TIMES_DECODER: Final = msgspec.msgpack.Decoder(Times)


def read_times(snapshot: Snapshot, instance: InstanceId, operators: int) -> Times:
    """Return how far time has come for an instance."""
    packed = snapshot.get(times_key(instance))
    return Times({}, [OperatorTime() for _ in range(operators)]) if packed is None else _TIMES_DECODER.decode(packed)


class Counts(msgspec.Struct, array_like=True):
    """What an instance did to its rows since the app began; the ledger adds these up."""

    operators: list[tuple[int, int, int]]  # taken, made, dead; for each operator of the chain
    copied: int = 0  # rows put once more because a port has several readers
    unread: int = 0  # rows of a port that nobody reads
    unread_dead: int = 0  # dead letters that nobody reads
    unread_late: int = 0  # late rows that nobody reads


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
    put_marks: int = 0


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
    taken_marks: int = 0
    wake_us: int | None = None  # when the instance wants a turn though nothing has arrived


@dataclass(slots=True)
class Taken:
    """Rows taken from a queue, with what is needed to commit or forget them."""

    instance: InstanceId
    record: QueueRecord
    stretches: list["Stretch"]
    stamps: tuple[Stamp, ...]
    sequences: list[int]  # entries used up
    head_sequence: int  # where the head stands after the turn
    head_offset: int
    bytes_gone: int
    rows: int = 0
    marks: int = 0
    queue_us: int = 0
    schedule_us: int = 0

    @property
    def batch(self) -> pa.RecordBatch | None:
        """All rows as one batch: for whoever has one input and does not care for time."""
        batches = [batch for stretch in self.stretches for united in stretch.batches.values() for batch in united]
        return unite(batches) if batches else None


@dataclass(slots=True)
class Stretch:
    """Rows that may be taken together, by input, and the marks behind them."""

    batches: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    exact: bool = False


@dataclass(slots=True)
class Prepared:
    """A turn that has been computed and needs only its commit."""

    taken: Taken
    plan: ChainPlan
    result: ChainResult
    puts: list[tuple[int, int, bytes, KnownSchema | None]]  # instance, rows, encoded entry, its schema unless a mark
    times: Times | None = None  # what is to be kept of time, if it changed
    known: dict[int, Known] | None = None  # what was read of the state, by the operator's index
    wake_us: int | None = None
    copied: int = 0
    unread: int = 0
    unread_dead: int = 0
    unread_late: int = 0
    compute_us: int = 0


def take(snapshot: Snapshot, instance: InstanceId, rows_max: int, schemas: Schemas, now_us: int) -> Taken:
    """Read up to so many waiting rows from the head of a queue, and the marks among and behind them."""
    record = read_queue(snapshot, instance)
    taken = Taken(instance, record, [], (), [], record.head_sequence, record.head_offset, 0)
    stamps: list[tuple[Stamp, ...]] = []
    first: dict[int, KnownSchema] = {}
    stretch: Stretch | None = None
    for sequence, encoded in waiting_entries(snapshot, instance, record, rows_max):
        entry = decode_entry(encoded)
        if entry.rows and taken.rows >= rows_max:
            break
        if stretch is None:
            stretch = Stretch()
            taken.stretches.append(stretch)
        offset = record.head_offset if sequence == record.head_sequence else 0
        wanted = min(entry.rows - offset, rows_max - taken.rows)
        if entry.rows:
            known = schemas.find(snapshot, entry.schema_id)
            if not schemas.fit(first.setdefault(entry.mark.source, known), known):
                break
            batch = decode_batch(entry.payload, known.schema, whole=known.whole)
            part = batch if wanted == entry.rows else batch.slice(offset, wanted)
            stretch.batches.setdefault(entry.mark.source, []).append(part)
            stamps.append(entry.stamps if wanted == entry.rows else share_stamps(entry.stamps, wanted, entry.rows))
            _account(taken, entry.enqueued_us, wanted, record.last_end_us, now_us)
        else:
            taken.marks += 1
        if offset + wanted < entry.rows:
            taken.head_sequence, taken.head_offset = sequence, offset + wanted
            break
        taken.sequences.append(sequence)
        taken.head_sequence, taken.head_offset = sequence + 1, 0
        taken.bytes_gone += len(encoded)
        if entry.mark.watermark_us != BEGINNING_OF_TIME or entry.mark.idle:
            stretch.marks.append(entry.mark)
            if entry.mark.exact:
                stretch.exact, stretch = True, None
        if taken.bytes_gone >= TURN_BYTES_MAX or len(taken.sequences) >= ENTRIES_MAX:
            break
    if stamps:
        taken.stamps = stamps[0] if len(stamps) == 1 else merge_stamps(stamps)
    return taken


def waiting_entries(
    snapshot: Snapshot, instance: InstanceId, record: QueueRecord, rows_max: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a queue from its head on. Where none was shed they have no gaps, and need no cursor.

    So many are read at a time as should be needed if all are alike; more and more of them, if they are not.
    """
    if record.shed_rows:
        for key, found in snapshot.scan(entries_prefix(instance), entry_key(instance, record.head_sequence)):
            yield entry_sequence(key), found
        return
    sequence, end = record.head_sequence, record.next_sequence
    needed = 1 + rows_max * (end - sequence) // (record.put_rows - record.taken_rows or 1)
    ahead = READ_AHEAD
    while sequence < end:
        count = min(needed, ahead, end - sequence)
        if count == 1:
            entries = [snapshot.get(entry_key(instance, sequence))]
        else:
            entries = snapshot.get_many([entry_key(instance, sequence + place) for place in range(count)])
        for encoded in entries:
            if encoded is None:
                raise StoreError(f"entry {sequence} of queue {instance} is missing from the store")
            yield sequence, encoded
            sequence += 1
        needed, ahead = max(needed - count, READ_AHEAD), 4 * ahead


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
    times: Times | None = None,
    known: dict[int, Known] | None = None,
) -> Prepared:
    """Run the chain on what was taken and lay out what is to be committed; raises UserCodeError to stop the flow."""
    began_us = clock()
    if condemn:
        batch = taken.batch
        assert batch is not None
        result = chain.condemn(batch, condemn)
        times = None
    else:
        recalled = {} if known is None else known
        turnover = Turnover(
            lambda index: StoredState(
                store, state_prefix(plan.app, plan.numbers[index]), recalled.setdefault(index, {})
            ),
            () if times is None else times.operators,
            began_us,
            plan.groups_of(taken.instance),
        )
        result = chain.run(_segments(taken, plan, times), turnover)
    ended_us = clock()
    prepared = Prepared(taken, plan, result, [], known=known, compute_us=ended_us - began_us)
    for emission in result.emissions:
        _emit_all(prepared, emission, schemas, ended_us, times)
    for index, batches in result.dead.items():
        _emit(prepared, plan.errors.get(index, ()), unite(batches), schemas, ended_us, index=index, dead=True)
    if times is not None:
        _settle_times(prepared, times, ended_us)
    return prepared


def _segments(taken: Taken, plan: ChainPlan, times: Times | None) -> list[Segment]:
    """Return what was taken as the chain takes it; the channels' watermarks become one."""
    segments = []
    channels = [] if times is None else plan.channels_of(taken.instance)
    for stretch in taken.stretches:
        batches = [(source, unite(parts)) for source, parts in sorted(stretch.batches.items())]
        if times is None:
            segments.append(Segment(batches))
            continue
        for mark in stretch.marks:
            times.note(mark)
        watermark_us, idle = times.watermark(channels)
        segments.append(Segment(batches, watermark_us, idle, stretch.exact))
    return segments


def _settle_times(prepared: Prepared, times: Times, now_us: int) -> None:
    """Keep how far time has come, and pass the end on to those who read the dead letters."""
    plan, instance = prepared.plan, prepared.taken.instance
    if times.sent_us == END_OF_TIME:
        for index, outlets in plan.errors.items():
            mark = Mark(plan.sender(index, instance), 0, END_OF_TIME)
            _put_marks(prepared, outlets, mark, {}, now_us)
    times.operators = prepared.result.times
    prepared.times = times
    prepared.wake_us = times.wake_us


def _emit_all(prepared: Prepared, emission: Emission, schemas: Schemas, now_us: int, times: Times | None) -> None:
    """Lay out the rows of all ports, and tell those who got none how far time has come."""
    plan = prepared.plan
    mark = Mark(plan.sender(-1, prepared.taken.instance))
    news = False
    if times is not None:
        watermark_us = max(times.sent_us, emission.watermark_us)
        news = watermark_us > times.sent_us or emission.idle != times.sent_idle or emission.exact
        times.sent_us, times.sent_idle = watermark_us, emission.idle
        mark = mark._replace(watermark_us=watermark_us, idle=emission.idle, exact=emission.exact)
    for port, batch in enumerate(emission.outputs):
        outlets = plan.outlets[port]
        told: dict[int, set[int]] = {}
        if batch is not None:
            _check_key(plan, outlets, batch)
            late = plan.operators[-1].operator.ports[port].startswith(LATE)
            told = _emit(prepared, outlets, batch, schemas, now_us, late=late, mark=mark)
        if news:
            _put_marks(prepared, outlets, mark, told, now_us)


def _put_marks(
    prepared: Prepared, outlets: Sequence[Outlet], mark: Mark, told: Mapping[int, set[int]], now_us: int
) -> None:
    own_index = prepared.taken.instance.number - prepared.plan.first_instance
    for number, outlet in enumerate(outlets):
        if outlet.marks:
            one_to_one = outlet.spread is Spread.FORWARD and len(outlet.targets) > 1
            reached = (outlet.targets[own_index],) if one_to_one else outlet.targets
            encoded = encode_mark(now_us, mark._replace(source=outlet.source))
            for target in reached:
                if target not in told.get(number, ()):
                    prepared.puts.append((target, 0, encoded, None))


def _emit(
    prepared: Prepared,
    outlets: Sequence[Outlet],
    batch: pa.RecordBatch,
    schemas: Schemas,
    now_us: int,
    *,
    index: int = -1,
    dead: bool = False,
    late: bool = False,
    mark: Mark | None = None,
) -> dict[int, set[int]]:
    """Lay out rows for all who read them, and return whom that reaches, by the number of the outlet."""
    rows = batch.num_rows
    prepared.copied += rows * max(0, len(outlets) - 1)
    if not outlets:
        prepared.unread += rows
        prepared.unread_dead += rows if dead else 0
        prepared.unread_late += rows if late else 0
        return {}
    taken = prepared.taken
    own_index = taken.instance.number - prepared.plan.first_instance
    known = schemas.known(batch.schema)
    reached: dict[int, set[int]] = {}
    for number, outlet in enumerate(outlets):
        sent = mark if mark is not None and outlet.marks else Mark(prepared.plan.sender(index, taken.instance))
        for target, part in spread(outlet, batch, own_index, taken.record.turns):
            stamps = share_stamps(taken.stamps, part.num_rows, rows)
            labelled = sent._replace(source=outlet.source)
            encoded = encode_entry(known.identity, now_us, part.num_rows, stamps, known.encode(part), labelled)
            prepared.puts.append((target, part.num_rows, encoded, known))
            reached.setdefault(number, set()).add(target)
    return reached


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
    kinds = tuple(batch.schema.field(column).type for column in outlet.key)
    groups = _groups.setdefault(kinds, KeyGroups()).of(rows.keys)
    of_row = (np.array(groups, np.int64) * len(outlet.targets) // KEY_GROUPS)[rows.codes]  # as `owner_of` does
    present = np.flatnonzero(np.bincount(of_row)).tolist()
    if len(present) == 1:
        return [(outlet.targets[present[0]], batch)]
    return [(outlet.targets[owner], batch.take(pa.array(np.flatnonzero(of_row == owner)))) for owner in present]


_groups: dict[tuple[pa.DataType, ...], KeyGroups] = {}  # by the types of the key: 1 and True are equal, and two keys


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
    commit_state(txn, plan, prepared.result)
    made_rows = _commit_counts(txn, prepared)
    filled = _commit_puts(txn, plan.app, prepared.puts, schemas)
    if prepared.times is not None:
        txn.put(times_key(taken.instance), msgspec.msgpack.encode(prepared.times))
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
        taken_marks=record.taken_marks,
        wake_us=prepared.wake_us,
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
        record.put_marks,
        record.taken_marks + taken.marks,
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


def commit_state(txn: Transaction, plan: ChainPlan, result: ChainResult) -> None:
    """Make what a chain changed of its state true."""
    for index, changes in result.state.items():
        prefix = state_prefix(plan.app, plan.numbers[index])
        txn.put_many([(prefix + entry, value) for entry, value in changes.items() if value is not None])
        for entry in [entry for entry, value in changes.items() if value is None]:
            txn.delete(prefix + entry)


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
    counts.unread_late += prepared.unread_late
    txn.put(counts_key(instance), msgspec.msgpack.encode(counts))
    return prepared.result.counts[-1].made


def _commit_puts(
    txn: Transaction, app: AppId, puts: Sequence[tuple[int, int, bytes, KnownSchema | None]], schemas: Schemas
) -> list[Filled]:
    by_target: dict[int, list[tuple[int, bytes]]] = {}
    for target, rows, encoded, known in puts:
        if known is not None:
            schemas.ensure(txn, known)
        by_target.setdefault(target, []).append((rows, encoded))
    filled = []
    for target, entries in by_target.items():
        record = append(txn, InstanceId(app, target), entries)
        filled.append(Filled(target, record.put_rows, record.put_bytes, record.put_marks))
    return filled


def _superseded(taken: Taken) -> TurnReport:
    return _nothing(taken, note="superseded")


def _nothing(taken: Taken, *, trouble: Trouble | None = None, note: str = "", wake_us: int | None = None) -> TurnReport:
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
        taken_marks=record.taken_marks,
        wake_us=wake_us,
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """One instance's part of a turn."""

    instance: InstanceId
    rows_max: int
    condemn: str = ""  # not empty: do not run these rows, they kill workers; say why


def _is_due(plan: ChainPlan, times: Times | None, now_us: int) -> bool:
    """Whether the clock alone calls for a turn; a chain that watches it has to be begun once."""
    if times is None:
        return False
    wake_us = times.wake_us
    return wake_us <= now_us if wake_us is not None else plan.watches_clock and times.sent_us != END_OF_TIME


@dataclass(slots=True)
class TurnRunner:
    """Runs turns against a store; the same in a Spark worker, in a thread and in a test."""

    store: Store
    term: bytes
    chains: Mapping[InstanceId, tuple[ChainPlan, OpenChain]]
    clock: Callable[[], int]
    schemas: Schemas = field(default_factory=Schemas)
    memory: StateMemory = field(default_factory=StateMemory)

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
            now_us = self.clock()
            times: Times | None = None
            with self.store.read() as snapshot:
                taken = take(snapshot, assignment.instance, assignment.rows_max, self.schemas, now_us)
                if plan.timed:
                    times = read_times(snapshot, assignment.instance, len(plan.operators))
            if not taken.stretches and not _is_due(plan, times, now_us):
                wake_us = None if times is None else times.wake_us
                reports.append(_nothing(taken, note="empty", wake_us=wake_us))
                continue
            try:
                known = self.memory.recall(assignment.instance, taken.record.turns)
                done = prepare(
                    plan, chain, taken, self.store, self.schemas, self.clock, assignment.condemn, times, known
                )
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
            reports = self._commit_unless_outrun(prepared)
        except StoreFull as full:  # nothing was changed; the rows wait where they are until there is room
            reports = [_nothing(one.taken, note=f"{STORE_FULL}: {full}") for one in prepared]
        for one, report in zip(prepared, reports, strict=True):
            if report.note:
                self.memory.forget(one.taken.instance)
            elif one.known is not None:
                self.memory.keep(one.taken.instance, one.taken.record.turns + 1, one.known, one.result.state)
        return reports

    def _commit_unless_outrun(self, prepared: Sequence[Prepared]) -> list[TurnReport]:
        """Commit; in a store elsewhere others may be faster again and again, which is no reason to compute again."""
        for _ in range(COMMITS_MAX):
            try:
                return commit(self.store, self.term, prepared, self.schemas, self.clock())
            except Conflict:
                continue
        return [_superseded(one.taken) for one in prepared]
