"""A sink's turn: take waiting rows, write them, commit that they are gone with the position the writer has reached.

The sibling of a chain's turn (`turn.py`), with the same fence: a node whose term is no longer the store's commits
nothing. The writer writes first, the commit follows: killed between the two, the writer is opened again where the
commit stands and undoes what lies past it. A full store refuses the commit; the rows are written, and committing again
is safe.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.dataflow.connectors import Position, SinkWriter
from headwater.dataflow.graph import UnionPlace
from headwater.engine.dequeue import Taken, advance, take
from headwater.engine.events import RowsGone
from headwater.engine.positions import ConnectorRecord, write_record
from headwater.engine.queue_records import read_queue
from headwater.engine.schemas import Schemas
from headwater.engine.shapes import Mixed, checked_shapes
from headwater.model.batch import Stamp
from headwater.model.errors import ConnectorError, StoreTaken, at_line
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Store, Transaction
from headwater.model.store_layout import TERM_KEY, shapes_key
from headwater.operators.chain import show_first

WRITE_ROWS_MAX: Final = 20_000


@dataclass(slots=True, kw_only=True)
class OpenSink:
    """A sink that is written here."""

    app: AppId
    name: str
    number: int  # among the flow's declarations: names its position
    instance: InstanceId  # its queue
    writer: SinkWriter
    unions: Mapping[int, UnionPlace] = field(default_factory=dict)  # before it, whose columns only rows can tell


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that a writer has, and the store does not know it yet."""

    sink: OpenSink
    taken: Taken
    position: Position
    shapes: bytes | None  # what is to be kept of the columns behind a union, if they changed

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        """The sampled rows among them, whose latency ends here."""
        return self.taken.stamps

    @property
    def leaves_more(self) -> bool:
        """Whether more rows wait: a turn ends at so many rows or bytes, and nobody else tells of the rest."""
        return self.taken.record.waiting_rows > self.taken.rows


class SinkTurn:
    """Gives turns to the sinks of a node."""

    def __init__(self, store: Store, term: bytes, clock: Callable[[], int]) -> None:
        self._store, self._term, self._clock = store, term, clock
        self._schemas = Schemas()

    def write(self, sink: OpenSink, rows_max: int = WRITE_ROWS_MAX) -> Written | None:
        """Write what waits for a sink, if anything does; raises ConnectorError, whatever went wrong."""
        try:
            with self._store.read() as snapshot:
                taken = take(snapshot, sink.instance, rows_max, self._schemas, self._clock())
                taken.shapes = snapshot.get(shapes_key(sink.instance)) if sink.unions else None
            shapes = checked_shapes(taken.shapes, taken.parts, sink.unions) if sink.unions else None
            batch = taken.batch
            return None if batch is None else Written(sink, taken, sink.writer.write([batch]), shapes)
        except BaseException as failure:  # a user's sink may raise anything, Arrow where rows do not go together
            is_told = isinstance(failure, ConnectorError | Mixed)
            sentence = str(failure) if is_told else f"{type(failure).__name__}: {failure}"
            if isinstance(failure, Mixed):
                sentence += f"{at_line(failure.union.line)}\n  row {show_first(failure.rows)}"
            raise ConnectorError(f"sink {sink.name!r} cannot go on: {sentence}") from failure

    def commit(self, written: Sequence[Written]) -> list[RowsGone]:
        """Take what was written from the queues, and return what the scheduler is to know.

        Raises StoreFull or StoreTaken; then nothing was changed.
        """
        with self._store.write() as txn:
            if txn.get(TERM_KEY) != self._term:
                raise StoreTaken
            return [_commit_one(txn, one, self._clock()) for one in written]


def keep_beginning(store: Store, app: AppId, number: int, writer: SinkWriter) -> None:
    """Keep where a new sink begins before any row is written, so that a crash in its first turn undoes that turn."""
    with store.write() as txn:
        write_record(txn, app, number, ConnectorRecord(position=writer.write([])))


def _commit_one(txn: Transaction, written: Written, now_us: int) -> RowsGone:
    sink, taken = written.sink, written.taken
    if written.shapes is not None:
        txn.put(shapes_key(sink.instance), written.shapes)
    record = read_queue(txn, sink.instance)
    assert record.head_sequence == taken.record.head_sequence, "a sink's queue was emptied by somebody else"
    record = advance(txn, taken, record, now_us)
    write_record(txn, sink.app, sink.number, ConnectorRecord(position=written.position))
    return RowsGone(sink.instance, record.taken_rows + record.shed_rows, record.gone_bytes, record.taken_marks)
