"""A turn: take waiting rows, run the chain, commit everything it changed at once.

The rows are read from a snapshot and processed outside any transaction; outputs, state, counts and the queue's new head
are committed in one short transaction. Before it changes anything, that checks that the queue is still where it was
when the rows were taken, and that the node which gave the turn still owns the store (a fencing token). So a turn that
was given twice counts once, whichever is faster, and a worker of a dead node changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa

from headwater.dataflow.graph import Spread
from headwater.engine.dequeue import Taken, advance, take, take_in_hand
from headwater.engine.entry_split import ROW_BYTES_MAX, cut, is_large, sieve
from headwater.engine.keyed_state import Known, StateMemory, StoredState
from headwater.engine.pending_entries import Put
from headwater.engine.plans import ChainPlan, Outlet
from headwater.engine.queue_records import QueueRecord, append, pass_by, read_queue
from headwater.engine.reports import Filled, RowTrouble, TurnReport, read_counts
from headwater.engine.schemas import Schemas
from headwater.engine.shapes import Mixed, checked_shapes
from headwater.engine.spreading import spread
from headwater.engine.times import Times, read_times
from headwater.model.batch import Mark, share_stamps
from headwater.model.errors import Conflict, NotNow, StoreFull, UserCodeError
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import WrongKey
from headwater.model.quoting import listed
from headwater.model.store_contract import Store, Transaction
from headwater.model.store_layout import TERM_KEY, counts_key, entry_key, shapes_key, state_prefix, times_key
from headwater.model.suggestions import did_you_mean
from headwater.model.time import END_OF_TIME
from headwater.operators.base import LATE
from headwater.operators.chain import ChainResult, Emission, OpenChain, Segment, Turnover, show_first, unite

STORE_FULL: Final = "store full"
NOT_NOW: Final = "not now"
KEY_BY: Final = "the key_by behind it"  # in the place of a line, where rows cannot be spread
LEAVING: Final = "where its rows leave it"
COMMITS_MAX: Final = 5  # attempts per turn; where others write meanwhile, what was read may change each time


@dataclass(slots=True)
class Prepared:
    """A turn that has been computed but not committed."""

    taken: Taken
    plan: ChainPlan
    result: ChainResult
    puts: list[Put]
    times: Times | None = None  # what is to be kept of time, if it changed
    known: dict[int, Known] | None = None  # what was read of the state, by the operator's index
    shapes: bytes | None = None  # what is to be kept of the columns behind a union, if they changed
    wake_us: int | None = None
    copied: int = 0
    unread: int = 0
    unread_dead: int = 0
    unread_late: int = 0
    compute_us: int = 0


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
    """Run the chain on the taken rows and lay out the commit; raises UserCodeError to stop the flow."""
    began_us = clock()
    shapes = _shapes(plan, taken) if plan.unions else None
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
    prepared = Prepared(taken, plan, result, [], known=known, shapes=shapes, compute_us=ended_us - began_us)
    prepared.unread, prepared.unread_late = result.unread, result.unread_late
    for emission in result.emissions:
        _emit_all(prepared, chain, emission, schemas, ended_us, times)
    for index, batches in result.dead.items():
        letters = unite(batches)
        outlets, large = plan.errors.get(index, ()), is_large(letters)
        _emit(prepared, outlets, letters, schemas, ended_us, large=large, index=index, dead=True)
    if times is not None:
        _settle_times(prepared, times, ended_us)
    return prepared


def _shapes(plan: ChainPlan, taken: Taken) -> bytes | None:
    """Return what is to be kept of the columns behind a union; streams of other types stop the flow."""
    try:
        return checked_shapes(taken.shapes, taken.parts, dict(plan.unions))
    except Mixed as mixed:
        union = mixed.union
        raise UserCodeError(plan.flow, union.name, str(mixed), union.line, show_first(mixed.rows)) from None


def _united(plan: ChainPlan, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join rows to one batch; if Arrow cannot, the flow stops with the reason."""
    try:
        return unite(batches)
    except pa.ArrowException as failure:
        row = show_first(batches[-1])
        error = f"rows that came to it in several batches cannot be joined to one: {failure}"
        raise UserCodeError(plan.flow, plan.operators[0].name, error, plan.operators[0].line, row) from failure


def _segments(taken: Taken, plan: ChainPlan, times: Times | None) -> list[Segment]:
    """Return the stretches as the chain takes them, with one watermark over all channels."""
    segments = []
    channels = [] if times is None else plan.channels_of(taken.instance)
    for stretch in taken.stretches:
        batches = [(source, _united(plan, parts)) for source, parts in sorted(stretch.batches.items())]
        if times is None:
            segments.append(Segment(batches))
            continue
        for mark in stretch.marks:
            if (mark.source, mark.sender) in channels:  # a peer could make up others
                times.note(mark)
        watermark_us, idle = times.watermark(channels)
        segments.append(Segment(batches, watermark_us, idle, stretch.exact))
    return segments


def _without_giants(prepared: Prepared, chain: OpenChain, batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Treat rows too large for any queue as if the operator had raised on them; return the others."""
    last = len(chain.operators) - 1
    fitting, giants = sieve(batch)
    for giant in giants:
        error = f"it made a row of {giant.nbytes:,} bytes; more than {ROW_BYTES_MAX:,} fit in no queue"
        chain.give_up(last, giant, error, LEAVING, prepared.result)
    prepared.result.counts[last].made -= len(giants)
    return fitting if fitting.num_rows else None


def _settle_times(prepared: Prepared, times: Times, now_us: int) -> None:
    """Store the event times, and pass the end of time to the readers of dead letters."""
    plan, instance = prepared.plan, prepared.taken.instance
    if times.sent_us == END_OF_TIME:
        for index, outlets in plan.errors.items():
            mark = Mark(plan.sender(index, instance), 0, END_OF_TIME)
            _put_marks(prepared, outlets, mark, {}, now_us)
    times.operators = prepared.result.times
    prepared.times = times
    prepared.wake_us = times.wake_us


def _emit_all(
    prepared: Prepared, chain: OpenChain, emission: Emission, schemas: Schemas, now_us: int, times: Times | None
) -> None:
    """Lay out the rows of all ports, and send the watermark to targets without rows."""
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
        large = batch is not None and is_large(batch)
        if large:
            batch = _without_giants(prepared, chain, batch)
        if batch is not None:
            _check_key(plan, outlets, batch)
            late = plan.operators[-1].operator.ports[port].startswith(LATE)
            told = _emit(prepared, outlets, batch, schemas, now_us, large=large, late=late, mark=mark)
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
            labelled = mark._replace(source=outlet.source)
            for target in reached:
                if target not in told.get(number, ()):
                    prepared.puts.append(Put(target, 0, now_us, labelled))


def _emit(
    prepared: Prepared,
    outlets: Sequence[Outlet],
    batch: pa.RecordBatch,
    schemas: Schemas,
    now_us: int,
    *,
    large: bool,
    index: int = -1,
    dead: bool = False,
    late: bool = False,
    mark: Mark | None = None,
) -> dict[int, set[int]]:
    """Lay out rows for all readers, and return the targets with rows, by the number of the outlet."""
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
    if (why := known.why_refused()) is not None:
        plan = prepared.plan
        raise UserCodeError(plan.flow, plan.operators[index].name, f"its rows: {why}", LEAVING, show_first(batch))
    reached: dict[int, set[int]] = {}
    for number, outlet in enumerate(outlets):
        sent = mark if mark is not None and outlet.marks else Mark(prepared.plan.sender(index, taken.instance))
        for target, part in _spread(prepared, outlet, batch, own_index, index):
            stamps = share_stamps(taken.stamps, part.num_rows, rows)
            labelled = sent._replace(source=outlet.source)
            *before, last = cut(part) if large else (part,)
            for piece in before:  # the mark comes with the last piece
                unmarked = Mark(labelled.sender, labelled.source)
                prepared.puts.append(Put(target, piece.num_rows, now_us, unmarked, piece, known))
            prepared.puts.append(Put(target, last.num_rows, now_us, labelled, last, known, stamps))
            reached.setdefault(number, set()).add(target)
    return reached


def _spread(
    prepared: Prepared, outlet: Outlet, batch: pa.RecordBatch, own_index: int, index: int
) -> list[tuple[int, pa.RecordBatch]]:
    """Return which rows go to which instance; rows that have no key to be spread by stop the flow."""
    try:
        return spread(outlet, batch, own_index, prepared.taken.record.turns)
    except WrongKey as failure:
        plan, row = prepared.plan, show_first(batch)
        raise UserCodeError(plan.flow, plan.operators[index].name, str(failure), KEY_BY, row) from failure


def _check_key(plan: ChainPlan, outlets: Sequence[Outlet], batch: pa.RecordBatch) -> None:
    for outlet in outlets:
        for column in outlet.key:
            if column not in batch.schema.names:
                known = batch.schema.names
                error = f"its rows are spread by column {column!r}, but have only: {listed(known)}"
                error += did_you_mean(column, known)
                row = show_first(batch)
                raise UserCodeError(plan.flow, plan.operators[-1].name, error, KEY_BY, row)


def commit(store: Store, term: bytes, prepared: Sequence[Prepared], schemas: Schemas, now_us: int) -> list[TurnReport]:
    """Commit the turns together; a turn superseded meanwhile is left out and reported so.

    If a turn has taken what another made, all are committed or none.
    """
    linked = any(one.taken.in_hand for one in prepared)
    _encode(prepared)
    with store.write() as txn:
        if txn.get(TERM_KEY) != term or (linked and not all(_is_current(txn, one.taken) for one in prepared)):
            return [_superseded(one.taken) for one in prepared]
        return [_commit_one(txn, one, schemas, now_us) for one in prepared]


def _encode(prepared: Sequence[Prepared]) -> None:
    """Encode the entries before the write lock is taken."""
    for one in prepared:
        for put in one.puts:
            if not put.in_hand:
                put.encoded()


def _is_current(txn: Transaction, taken: Taken) -> bool:
    return _still_there(txn, taken, read_queue(txn, taken.instance))


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
    if prepared.shapes is not None:
        txn.put(shapes_key(taken.instance), prepared.shapes)
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


def _still_there(txn: Transaction, taken: Taken, record: QueueRecord) -> bool:
    before = taken.record
    if (record.head_sequence, record.head_offset, record.turns) != (
        before.head_sequence,
        before.head_offset,
        before.turns,
    ):
        return False
    if record.shed_rows == before.shed_rows:
        return True
    touched = [*taken.sequences, taken.head_sequence] if taken.head_offset else taken.sequences
    return all(txn.get(entry_key(taken.instance, sequence)) is not None for sequence in touched)


def commit_state(txn: Transaction, plan: ChainPlan, result: ChainResult) -> None:
    """Write the changes of a chain's state."""
    for index, changes in result.state.items():
        prefix = state_prefix(plan.app, plan.numbers[index])
        txn.put_many((prefix + entry, value) for entry, value in changes.items() if value is not None)
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


def _commit_puts(txn: Transaction, app: AppId, puts: Sequence[Put], schemas: Schemas) -> list[Filled]:
    by_target: dict[int, list[Put]] = {}
    for put in puts:
        by_target.setdefault(put.target, []).append(put)
    filled = []
    for target, entries in by_target.items():
        record = _fill(txn, InstanceId(app, target), entries, schemas)
        filled.append(Filled(target, record.put_rows, record.put_bytes, record.put_marks))
    return filled


def _fill(txn: Transaction, instance: InstanceId, puts: Sequence[Put], schemas: Schemas) -> QueueRecord:
    if puts[0].in_hand:  # all entries of one turn for a queue are taken in hand, or none
        return pass_by(txn, instance, sum(put.rows for put in puts), sum(put.rows == 0 for put in puts))
    for put in puts:
        if put.known is not None:
            schemas.ensure(txn, instance.app, put.known)
    return append(txn, instance, [(put.rows, put.encoded()) for put in puts])


def _superseded(taken: Taken) -> TurnReport:
    return _nothing(taken, note="superseded")


def _nothing(
    taken: Taken, *, trouble: RowTrouble | None = None, note: str = "", wake_us: int | None = None
) -> TurnReport:
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
    condemn: str = ""  # if not empty: do not run these rows, which kill workers, and drop them for this reason


def _is_due(plan: ChainPlan, times: Times | None, now_us: int) -> bool:
    """Whether a timer calls for a turn; a chain that watches the clock needs a first one."""
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
        """Take, compute and commit; rows that stop a flow are reported, and do not affect the other assignments.

        An assignment may follow rows that an earlier one made; it gets them directly, and all are one commit.
        """
        reports: list[TurnReport] = []
        prepared: list[Prepared] = []
        made: dict[InstanceId, list[Put]] = {}  # and not committed yet
        for assignment in assignments:
            handed = made.pop(assignment.instance, [])
            taken, times = self._take(assignment, handed)
            if taken is None:  # the rows made for it have to be stored first
                reports += self._commit(prepared)
                prepared, made, handed = [], {}, []
                taken, times = self._take(assignment, handed)
            assert taken is not None
            done = self._prepare(assignment, taken, times)
            if isinstance(done, TurnReport):
                reports.append(done)
                continue
            prepared.append(done)
            for put in handed:
                put.in_hand = True
            for put in done.puts:
                made.setdefault(InstanceId(done.plan.app, put.target), []).append(put)
        if prepared:
            reports += self._commit(prepared)
        return reports

    def _take(self, assignment: Assignment, handed: Sequence[Put]) -> tuple[Taken | None, Times | None]:
        """Take rows made in this turn, or else from the queue; and read the event times."""
        instance, rows_max = assignment.instance, assignment.rows_max
        plan, _ = self.chains[instance]
        taken: Taken | None
        with self.store.read() as snapshot:
            if handed:
                taken = take_in_hand(snapshot, instance, handed, rows_max, self.schemas)
            else:
                taken = take(snapshot, instance, rows_max, self.schemas, self.clock())
            if taken is not None and plan.unions:
                taken.shapes = snapshot.get(shapes_key(instance))
            return taken, read_times(snapshot, instance, len(plan.operators)) if plan.timed else None

    def _prepare(self, assignment: Assignment, taken: Taken, times: Times | None) -> Prepared | TurnReport:
        """Compute; where nothing is to be done or the rows stop the flow, return the report of that."""
        plan, chain = self.chains[assignment.instance]
        if not taken.stretches and not _is_due(plan, times, self.clock()):
            return _nothing(taken, note="empty", wake_us=None if times is None else times.wake_us)
        try:
            known = self.memory.recall(assignment.instance, taken.record.turns)
            return prepare(plan, chain, taken, self.store, self.schemas, self.clock, assignment.condemn, times, known)
        except UserCodeError as failure:
            trouble = RowTrouble(failure.operator, failure.error, failure.line, failure.row)
            return _nothing(taken, trouble=trouble)
        except NotNow as why:  # as with a full store: the rows wait where they are
            self.memory.forget(assignment.instance)
            return _nothing(taken, note=f"{NOT_NOW}: {why}")

    def _commit(self, prepared: Sequence[Prepared]) -> list[TurnReport]:
        try:
            reports = self._commit_unless_outrun(prepared)
        except StoreFull as full:  # nothing was changed; the rows wait in their queues
            reports = [_nothing(one.taken, note=f"{STORE_FULL}: {full}") for one in prepared]
        for one, report in zip(prepared, reports, strict=True):
            if report.note:
                self.memory.forget(one.taken.instance)
            elif one.known is not None:
                self.memory.keep(one.taken.instance, one.taken.record.turns + 1, one.known, one.result.state)
        return reports

    def _commit_unless_outrun(self, prepared: Sequence[Prepared]) -> list[TurnReport]:
        """Commit; on a remote store commits of others may conflict repeatedly, which needs no new computation."""
        for _ in range(COMMITS_MAX):
            try:
                return commit(self.store, self.term, prepared, self.schemas, self.clock())
            except Conflict:
                continue
        return [_superseded(one.taken) for one in prepared]
