"""Copies what a store keeps of one version of an app to where the next version looks for it.

It is copied under another app number, in short commits, while neither version runs. Only the caller's last commit makes
the copy valid, and the original is deleted after that: after a crash in between the old version is intact.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from headwater.dataflow.manifest import ChainLayout
from headwater.dataflow.succession import Succession
from headwater.engine.channels import number_on
from headwater.engine.positions import ConnectorRecord, read_record, write_record
from headwater.engine.queue_records import all_queues
from headwater.engine.times import Times, read_times
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot, Store, Transaction
from headwater.model.store_layout import app_prefixes, code_prefix, lot_key, position_key, state_prefix, times_key
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.watermarks import OperatorTime, WithWatermark

SLICE: Final = 1_000  # entries in one commit, for which other writers wait


def adopt(store: Store, before: AppId, after: AppId, kept: Succession) -> None:
    """Copy state, positions and event times of all that the next version keeps; the counts begin anew."""
    for one, old, new in kept.numbers:
        if one.role == "operator":
            copy_range(store, state_prefix(before, old), state_prefix(after, new))
        else:
            with store.write() as txn:
                position = read_record(txn, before, old).position
                write_record(txn, after, new, ConnectorRecord(position=position))
    for chain in kept.after.chains:
        for index in range(chain.parallelism):
            with store.write() as txn:
                _adopt_times(txn, before, after, kept, chain, index)
                _adopt_lot(txn, before, after, kept, chain, index)


def adopt_as_it_lies(store: Store, before: AppId, after: AppId, given_up: Iterable[int] = ()) -> None:
    """Copy everything but the code: for a version of the same structure, which also takes over queued rows.

    The sinks in `given_up` begin without a position, at the first row in their queue.
    """
    code = code_prefix(before)[:1]
    for old, new in zip(app_prefixes(before), app_prefixes(after), strict=True):
        if old[:1] != code:
            copy_range(store, old, new)
    with store.write() as txn:
        number_on(txn, before, after)
        for number in given_up:
            txn.delete(position_key(after, number))


def copy_range(store: Store, source: bytes, target: bytes) -> None:
    """Copy all keys below one prefix to another, a slice at a time."""
    start = source
    while True:
        with store.write() as txn:
            found = [(bytes(key), bytes(value)) for key, value in islice(txn.scan(source, start), SLICE)]
            txn.put_many([(target + key[len(source) :], value) for key, value in found])
        if len(found) < SLICE:
            return
        start = found[-1][0] + b"\0"


def _adopt_times(
    txn: Transaction, before: AppId, after: AppId, kept: Succession, chain: ChainLayout, index: int
) -> None:
    """Let the operators of an instance resume at the event time that each has reached.

    The last watermarks of channels are not copied: instances may have other neighbours, and every sender sends its
    watermark again.
    """
    found = [_time_of(txn, before, kept, operator, index) for operator in chain.operators]
    if any(time is not None for time in found):
        times = Times({}, [time or OperatorTime() for time in found])
        txn.put(times_key(InstanceId(after, chain.first_instance + index)), msgspec.msgpack.encode(times))


def _adopt_lot(txn: Transaction, before: AppId, after: AppId, kept: Succession, chain: ChainLayout, index: int) -> None:
    """Copy the lot with the state, so that a stale copy here is not taken for the current one."""
    operator = next((one for one in chain.operators if one in kept.kept), None)
    if operator is not None:
        lot = txn.get(lot_key(InstanceId(before, kept.before.chain_of(operator).first_instance + index)))
        if lot is not None:
            txn.put(lot_key(InstanceId(after, chain.first_instance + index)), bytes(lot))


def _time_of(snapshot: Snapshot, before: AppId, kept: Succession, operator: str, index: int) -> OperatorTime | None:
    if operator not in kept.kept:
        return None
    chain = kept.before.chain_of(operator)
    instance = InstanceId(before, chain.first_instance + index)
    time = read_times(snapshot, instance, len(chain.operators)).operators[chain.operators.index(operator)]
    one = kept.after.find(operator)
    assert one is not None
    return _to_be_told_again(time) if one.kind == WithWatermark.kind else time


def _to_be_told_again(time: OperatorTime) -> OperatorTime:
    """Return a watermark that is sent anew with the next row, timer or end."""
    has_ended = time.watermark_us == END_OF_TIME
    return msgspec.structs.replace(
        time, watermark_us=BEGINNING_OF_TIME if has_ended else time.watermark_us, wake_us=None, idle=False
    )


def rows_waiting(snapshot: Snapshot, app: AppId) -> int:
    """Return how many rows wait in all queues of an app, whatever its structure."""
    return sum(record.waiting_rows for record in all_queues(snapshot, app))
