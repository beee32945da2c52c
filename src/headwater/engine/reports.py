"""What a turn did, and what an instance has done since its app began, as counts that only grow."""

from typing import Final

import msgspec

from headwater.model.ids import InstanceId
from headwater.model.store_contract import Snapshot
from headwater.model.store_layout import counts_key


class Counts(msgspec.Struct, array_like=True):
    """What an instance did to its rows since the app began; the ledger adds these up."""

    operators: list[tuple[int, int, int]]  # taken, made, dead; for each operator of the chain
    copied: int = 0  # rows put once more because a port has several readers
    unread: int = 0  # of a port without a reader
    unread_dead: int = 0  # dead letters without a reader
    unread_late: int = 0  # late rows without a reader


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


class RowTrouble(msgspec.Struct, array_like=True, frozen=True):
    """A user's function raised on a row, and the flow is to stop."""

    operator: str
    error: str
    line: str
    row: str


class TurnReport(msgspec.Struct, array_like=True, frozen=True):
    """What a turn did, in absolute counts, so that a lost or repeated report does no harm."""

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
    trouble: RowTrouble | None = None
    note: str = ""  # why nothing was committed, if that is nobody's fault: superseded, store full, not now
    taken_marks: int = 0
    wake_us: int | None = None  # when the instance wants a turn, even without new rows
