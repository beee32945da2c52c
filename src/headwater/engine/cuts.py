"""Rows in doubt: an instance without state begins anew elsewhere, since its host is lost with the rows that lay there.

Such a beginning is a **cut**: it has the lot of the new placement (a fencing token) and names the host that was lost.
Rows that lie on the lost host's disk wait for it. Of those that a sender had sent there and that were not acknowledged,
it cannot say whether the lost host has taken them, and perhaps committed what it made of them: they are in doubt. To
send them to the new host could double them, to delete them could lose them. So the sender puts them into a queue of
their own, which is bound to the lost host: when that is back, it takes the ones that it has not taken before, by the
numbers they have, and acknowledges all. What lies there then travels to the new host like the rows of any sender.

A sender sends rows only to a host that has answered it, and remembers durably that one has, before it sends the first:
so nothing is in doubt that was never sent. If the instance had moved before it was lost, its last host knows what those
before had taken. Everything sent under a cut travels in a channel of its own, under another name, that is,
of its queues: the new host counts from the sender's next number on, and the lost one, should it ever run the instance
again, confuses nothing. A host refuses what is sent under another cut than its own; so the sender learns of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from headwater.engine.channels import ORIGIN_BYTES, ChannelReceived, hand_on, keep_received_rows
from headwater.engine.queue_records import QueueRecord, begin_queue, read_queue
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import StoreError
from headwater.model.ids import INSTANCES_MAX, AppId, InstanceId, InstanceNumber
from headwater.model.peers import NodeId, Peer
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import (
    cut_key,
    doubt_key,
    doubts_prefix,
    entries_prefix,
    entry_key,
    entry_sequence,
    handed_on_key,
    key_number,
    queue_key,
    received_prefix,
)
from headwater.model.terms import Lot

CUTS_MAX: Final = 16  # of one instance: after so many losses it waits for its host, as one with state does
UNCUT: Final[Lot] = (0, 0)
_SELF: Final = bytes(ORIGIN_BYTES)  # what a queue of rows in doubt has, it has from the queue beside it


class InstanceCut(NamedTuple):
    """An instance began anew under this lot, since this host was lost."""

    lot: Lot
    host: Peer


Cuts = Annotated[tuple[InstanceCut, ...], Meta(max_length=CUTS_MAX)]  # of one instance, the latest last


class KnownCut(msgspec.Struct, array_like=True, frozen=True):
    """Under which cut rows of an instance are sent from a store, and who was known to take them first."""

    lot: Lot = UNCUT
    host: Peer | None = None


class Doubt(msgspec.Struct, array_like=True, frozen=True):
    """Rows that one host may have taken, and under which cut they were sent to it."""

    host: Peer
    lot: Lot


_KNOWN: Final = msgspec.msgpack.Decoder(KnownCut)
_DOUBT: Final = msgspec.msgpack.Decoder(Doubt)


def last_lot(cuts: Sequence[InstanceCut]) -> Lot:
    """Return the lot of the last cut; of an instance that was never cut there is one, too."""
    return cuts[-1].lot if cuts else UNCUT


def lost_since(lot: Lot, cuts: Sequence[InstanceCut]) -> Peer | None:
    """Return the only host that may say what became of rows that were sent under a cut: later ones refuse them."""
    lots = [UNCUT, *(cut.lot for cut in cuts)]
    place = lots.index(lot) if lot in lots else len(cuts)
    return cuts[place].host if place < len(cuts) else None


def origin_under(origin: bytes, lot: Lot) -> bytes:
    """Return the name of the channel of rows that are sent under a cut, by the name of the app's queues."""
    if lot == UNCUT:
        return origin
    term, version = lot
    return blake2b(origin + term.to_bytes(8, "big") + version.to_bytes(8, "big"), digest_size=ORIGIN_BYTES).digest()


def known_cut(snapshot: Snapshot, instance: InstanceId) -> KnownCut:
    """Return under which cut the rows of an instance are sent or taken here."""
    packed = snapshot.get(cut_key(instance))
    try:
        return KnownCut() if packed is None else _KNOWN.decode(packed)
    except UNDECODABLE as damage:
        raise StoreError(f"the record of what instance {instance} has lost is damaged: {damage}") from damage


def doubts_of(snapshot: Snapshot, app: AppId) -> Iterator[tuple[InstanceId, Doubt]]:
    """Go through the queues of rows in doubt of an app, and what they wait for."""
    for key, packed in snapshot.scan(doubts_prefix(app)):
        try:
            yield InstanceId(app, key_number(key)), _DOUBT.decode(packed)
        except UNDECODABLE as damage:
            raise StoreError(f"the record of rows in doubt of app {app} is damaged: {damage}") from damage


def meant(number: int) -> int:
    """Return the instance that a queue's rows are for: that of rows in doubt has a number beyond all instances."""
    return number % INSTANCES_MAX


def keep_host(txn: Transaction, instance: InstanceId, lot: Lot, host: Peer) -> None:
    """Remember to whom rows of an instance are sent from now on."""
    txn.put(cut_key(instance), msgspec.msgpack.encode(KnownCut(lot, host)))


def obey_cuts(
    txn: Transaction, instance: InstanceId, cuts: Sequence[InstanceCut], own: Peer, tried: int | None = None
) -> QueueRecord | None:
    """Send or take rows of an instance under the last of these cuts from now on; return its queue if there is news.

    Rows with numbers before `tried` (None: all) may have been sent, if any host was known, and are in doubt unless we
    are the host that was lost. Nothing changes while rows that were sent under this very cut are in doubt: their
    numbers would be passed.
    """
    known, lot = known_cut(txn, instance), last_lot(cuts)
    if known.lot == lot:
        return None
    if any(meant(one.number) == instance.number and doubt.lot == lot for one, doubt in doubts_of(txn, instance.app)):
        return None
    record = read_queue(txn, instance)
    until = record.next_sequence if tried is None else tried
    if known.host is not None and until > record.head_sequence:
        host = lost_since(known.lot, cuts) or known.host
        if host.id != own.id:
            record = _set_apart(txn, instance, until, Doubt(host, known.lot))
    txn.put(cut_key(instance), msgspec.msgpack.encode(KnownCut(lot)))
    return record


def _set_apart(txn: Transaction, instance: InstanceId, until: int, doubt: Doubt) -> QueueRecord:
    """Bring the entries before a number into a queue of rows in doubt; return the record of what they leave."""
    since = read_queue(txn, instance).head_sequence
    taken = []
    for key, encoded in txn.scan(entries_prefix(instance), entry_key(instance, since)):
        if entry_sequence(key) >= until:
            break
        taken.append((entry_sequence(key), bytes(encoded)))
    record = hand_on(txn, instance, until)
    apart = _free_number(txn, instance)
    put = begin_queue(txn, apart, since, until, taken)
    keep_received_rows(txn, apart, _SELF, ChannelReceived(until, put.put_rows))
    txn.put(doubt_key(apart), msgspec.msgpack.encode(doubt))
    return record


def _free_number(snapshot: Snapshot, instance: InstanceId) -> InstanceId:
    number = instance.number + INSTANCES_MAX
    while snapshot.get(doubt_key(InstanceId(instance.app, number))) is not None:
        number += INSTANCES_MAX
    return InstanceId(instance.app, number)


def forget_if_settled(txn: Transaction, apart: InstanceId) -> bool:
    """Forget a queue of rows in doubt that has none any more."""
    record = read_queue(txn, apart)
    if record.head_sequence < record.next_sequence:
        return False
    for key in (doubt_key(apart), queue_key(apart), handed_on_key(apart)):
        txn.delete(key)
    for key in [bytes(key) for key, _ in txn.scan(received_prefix(apart))]:
        txn.delete(key)
    return True


class Unsettled(msgspec.Struct, array_like=True, frozen=True):
    """What a store has of an app that a host which was lost may have to answer for, if it is back."""

    hosts: Annotated[tuple[NodeId, ...], Meta(max_length=INSTANCES_MAX)] = ()  # that rows in doubt wait for
    sent: Annotated[
        tuple[tuple[InstanceNumber, Lot], ...], Meta(max_length=INSTANCES_MAX)
    ] = ()  # the instances of which rows have been sent, and under which cut

    def behind(self, host: NodeId, cuts: Mapping[int, Sequence[InstanceCut]]) -> list[int]:
        """Return the instances of which this store may have sent a host rows that was lost, and has yet to hear so."""
        losses = ((number, lost_since(lot, cuts.get(number, ()))) for number, lot in self.sent)
        return [number for number, lost in losses if lost is not None and lost.id == host]


def unsettled(snapshot: Snapshot, app: AppId, instances: Iterable[int]) -> Unsettled:
    """Return what of an app is in doubt in a store, or may come to be when its senders hear of a loss."""
    hosts = {doubt.host.id for _, doubt in doubts_of(snapshot, app)}
    known = ((number, known_cut(snapshot, InstanceId(app, number))) for number in instances)
    sent = [(number, one.lot) for number, one in known if one.host is not None]
    return Unsettled(tuple(sorted(hosts)[:INSTANCES_MAX]), tuple(sent))
