"""An instance's state on its way from one store to another.

What moves is the state of its keys, its event time, and up to which number it has taken the rows of every store. Rows
do not move: an instance moves when its queue has no more rows from other nodes, and what its own node puts there
afterwards travels through the outbox, as rows always do. The counts of what it did stay where it did it.

Every placement of an instance has a **lot** (a fencing token), which is never drawn twice, and a store records the lot
under which the instance ran there last. So a stale copy is not taken for the state of an instance that has come back.
"""

import struct
from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from headwater.engine.channels import all_received, hand_on, keep_received
from headwater.engine.plans import ChainPlan
from headwater.engine.queue_records import QueueRecord, read_queue
from headwater.engine.times import Times
from headwater.model.decoding import UNDECODABLE
from headwater.model.entries import belongs_to, is_shared
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import given_key, key_number, lot_key, lots_prefix, queue_key, state_prefix, times_key
from headwater.model.terms import Lot

_LOT: Final = struct.Struct("<QQ?")
_WITH: Final = struct.Struct("<QQ16s")  # a lot and a node: to whom it was given, or from whom a copy came
_NAME_BYTES_MIN: Final = 11  # of a key of state: its kind, a time, a group

Place = tuple[int, bytes, int]  # an operator's number, the key of an entry of its state, an offset
Held = tuple[int, bytes, int, bytes]  # and the bytes there

BEGINNING: Final[Place] = (0, b"", 0)


class StatePiece(NamedTuple):
    """A part of an instance's state."""

    held: tuple[Held, ...]
    is_last: bool


class CopySource(NamedTuple):
    """Where a copy of an instance came from: it may run once that node has deleted what it has under that lot."""

    host: bytes
    lot: Lot


class Standing(NamedTuple):
    """The progress of an instance, besides its state."""

    received: tuple[tuple[bytes, int], ...]  # for each store, the number up to which its rows are taken
    times: bytes | None


def read_lot(snapshot: Snapshot, instance: InstanceId) -> Lot | None:
    """Return the lot under which an instance runs here, or did last; None if it never has."""
    packed = snapshot.get(lot_key(instance))
    return None if packed is None else _LOT.unpack_from(packed)[:2]


def is_settled(snapshot: Snapshot, instance: InstanceId) -> bool:
    """Whether this store has the only copy of an instance."""
    packed = snapshot.get(lot_key(instance))
    return packed is not None and bool(_LOT.unpack_from(packed)[2])


def read_source(snapshot: Snapshot, instance: InstanceId) -> CopySource | None:
    """Return where the copy of an instance that is here came from, as long as another node may have the instance."""
    packed = snapshot.get(lot_key(instance))
    if packed is None or len(packed) != _LOT.size + _WITH.size:
        return None
    high, low, host = _WITH.unpack_from(packed, _LOT.size)
    return CopySource(host, (high, low))


def all_lots(snapshot: Snapshot, app: AppId) -> dict[int, Lot]:
    """Return the lots of all instances of an app that run here, or did and have not been given away."""
    return {key_number(key): _LOT.unpack_from(packed)[:2] for key, packed in snapshot.scan(lots_prefix(app))}


def keep_lot(txn: Transaction, instance: InstanceId, lot: Lot, source: CopySource | None = None) -> None:
    """Remember under which lot an instance is here; without a source no other node has it, and it may run."""
    copied = b"" if source is None else _WITH.pack(*source.lot, source.host)
    txn.put(lot_key(instance), _LOT.pack(*lot, source is None) + copied)
    txn.delete(given_key(instance))


def give_away(txn: Transaction, plan: ChainPlan, instance: InstanceId, to: bytes, *, shared: bool) -> None:
    """Delete the instance's state and record its new host; only that host is ever sent StateForgotten."""
    lot = read_lot(txn, instance)
    assert lot is not None, instance
    clear_state(txn, plan, instance, shared=shared)
    txn.delete(lot_key(instance))
    txn.put(given_key(instance), _WITH.pack(*lot, to))


def was_given_to(snapshot: Snapshot, instance: InstanceId, lot: Lot, to: bytes) -> bool:
    """Whether an instance with this lot was given to this node."""
    packed = snapshot.get(given_key(instance))
    return packed is not None and _WITH.unpack(packed) == (*lot, to)


def read_piece(
    snapshot: Snapshot,
    plan: ChainPlan,
    instance: InstanceId,
    after: Place,
    bytes_max: int,
    entry_bytes_max: int,
    entries_max: int,
) -> StatePiece:
    """Return the state of an instance after a place, at most `bytes_max` and `entries_max`, but one entry at least.

    An entry longer than `entry_bytes_max` is split. Entries that keys share are not: they are small, and other
    instances would read a part of one.
    """
    held: list[Held] = []
    size = 0
    for number, name, begin, value in _state_of(snapshot, plan, instance, after):
        if held and (size + len(name) + len(value) > bytes_max or len(held) == entries_max):
            return StatePiece(tuple(held), is_last=False)
        if len(value) > entry_bytes_max and not is_shared(name):
            return StatePiece((*held, (number, name, begin, bytes(value[:entry_bytes_max]))), is_last=False)
        held.append((number, name, begin, bytes(value)))
        size += len(name) + len(value)
    return StatePiece(tuple(held), is_last=True)


def place_behind(held: Held) -> Place:
    """Return the place that follows this part of a state."""
    number, name, begin, value = held
    return number, name, begin + len(value)


def _state_of(snapshot: Snapshot, plan: ChainPlan, instance: InstanceId, after: Place) -> Iterator[Held]:
    """Iterate over the state of an instance, including what its operators keep for all keys together."""
    groups = plan.groups_of(instance)
    for number in sorted(plan.numbers):
        if number < after[0]:
            continue
        prefix = state_prefix(plan.app, number)
        start = prefix + after[1] if number == after[0] else prefix
        for key, value in snapshot.scan(prefix, start):
            name = bytes(key[len(prefix) :])
            begin = 0
            if (number, name) == after[:2]:
                begin = after[2]
                if begin >= len(value):
                    continue
            if is_shared(name) or belongs_to(name, groups):
                yield number, name, begin, value[begin:]


def put_piece(txn: Transaction, plan: ChainPlan, instance: InstanceId, held: Sequence[Held]) -> None:
    """Store a part of the state of an instance that is to run here; shared entries that are here already stay."""
    groups = plan.groups_of(instance)
    for number, name, begin, value in held:
        if number not in plan.numbers or len(name) < _NAME_BYTES_MIN:
            raise StoreError(f"instance {instance} has no state {name[:40]!r} of an operator {number}")
        key = state_prefix(plan.app, number) + name
        if is_shared(name):
            if txn.get(key) is None:
                txn.put(key, value)
        elif belongs_to(name, groups):
            txn.put(key, _joined(txn.get(key), begin, value))
        else:
            raise StoreError(f"state {name[:40]!r} is not of a key of instance {instance}")


def _joined(before: bytes | None, begin: int, value: bytes) -> bytes:
    """Return an entry of which the first part may be here already."""
    if begin == 0:
        return value
    if before is None or len(before) != begin:
        raise StoreError(f"a part of a state begins at byte {begin}, where nothing ends")
    return bytes(before) + value


def clear_state(txn: Transaction, plan: ChainPlan, instance: InstanceId, *, shared: bool) -> None:
    """Delete the state of an instance; `shared`: also what its operators share with their other instances."""
    gone = [
        state_prefix(plan.app, number) + name
        for number, name, _, _ in _state_of(txn, plan, instance, BEGINNING)
        if shared or not is_shared(name)
    ]
    for key in gone:
        txn.delete(key)
    txn.delete(times_key(instance))


def begin_under(txn: Transaction, plan: ChainPlan | None, instance: InstanceId, lot: Lot, here: Container[int]) -> None:
    """Let an instance, or a sink, run here under a lot; state under another lot is stale and is deleted.

    `here` are the instances that run here already: such a one only gets another lot.
    """
    known = read_lot(txn, instance)
    if plan is not None and known not in (None, lot) and instance.number not in here:
        clear_state(txn, plan, instance, shared=not shares(plan, instance, here))
    keep_lot(txn, instance, lot)


def shares(plan: ChainPlan, instance: InstanceId, here: Container[int]) -> bool:
    """Whether another instance of the chain is here, with which it shares what operators keep for all keys."""
    of_chain = range(plan.first_instance, plan.first_instance + plan.parallelism)
    return any(number in here for number in of_chain if number != instance.number)


def read_standing(snapshot: Snapshot, instance: InstanceId, own_origin: bytes) -> Standing:
    """Return the progress of an instance that has stopped.

    This includes the rows of its own node: some may have been sent elsewhere before the instance came, and still be
    under way after it has gone.
    """
    received = {origin: channel.until for origin, channel in all_received(snapshot, instance).items()}
    received[own_origin] = read_queue(snapshot, instance).head_sequence
    times = snapshot.get(times_key(instance))
    return Standing(tuple(received.items()), None if times is None else bytes(times))


def take_up(
    txn: Transaction,
    instance: InstanceId,
    own_origin: bytes,
    standing: Standing,
    lot: Lot,
    source: CopySource,
    operators: int,
) -> QueueRecord:
    """Let an instance resume here where it stopped elsewhere; return its queue's record.

    Rows in this node's outbox that it has taken there are acknowledged; the rest are the first rows it takes. The count
    of turns is raised, so that no worker uses its cache of the instance's state.
    """
    if standing.times is not None:
        _check_times(standing.times, operators)
        txn.put(times_key(instance), standing.times)
    for origin, until in standing.received:
        if origin == own_origin:
            hand_on(txn, instance, until)
        else:
            keep_received(txn, instance, origin, until)
    record = read_queue(txn, instance)
    record = record._replace(turns=record.turns + 1)
    txn.put(queue_key(instance), record.pack())
    keep_lot(txn, instance, lot, source)
    return record


def _check_times(packed: bytes, operators: int) -> None:
    """Raise StoreError unless these are the event times of so many operators."""
    try:
        times = msgspec.msgpack.decode(packed, type=Times)
    except UNDECODABLE as damage:
        raise StoreError(f"what should tell how far event time has come does not: {damage}") from damage
    if len(times.operators) != operators:
        raise StoreError(
            f"it is told of {len(times.operators)} operators how far time has come, and there are {operators}"
        )
