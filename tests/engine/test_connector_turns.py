"""Turns of sources and sinks: what a crash, a full disk or another owner of the store leaves behind."""

import ast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dataflow.connectors import Ended, Poll, Position, Rows, SourceReader
from headwater.dataflow.graph import Spread
from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.engine.plans import Outlet
from headwater.engine.positions import read_record
from headwater.engine.pressure import Pressure, PressureConfig
from headwater.engine.queue_records import read_queue
from headwater.engine.queues import Queue, Queues
from headwater.engine.sink_turn import OpenSink, SinkTurn, keep_beginning
from headwater.engine.source_turn import Offer, OpenSource, SourceTurn, tell_stored
from headwater.model.errors import ConnectorError, StoreFull, StoreTaken
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_layout import TERM_KEY
from headwater.sim.targets import Targets
from headwater.storage.memory_store import MemoryStore

QUEUE = InstanceId(AppId(1), 0)
OUTLET = Outlet(Spread.BALANCE, (), (0,))
TERM = b"\x01"
SOURCE, SINK = 0, 1  # their places among the declarations


class Numbers:
    """Reads the numbers up to 100 from a position on."""

    def __init__(self, position: Position | None) -> None:
        self.at = 0 if position is None else int(position["at"])

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return the next numbers."""
        if self.at == 100:
            return Ended()
        numbers = range(self.at, min(100, self.at + rows_max))
        self.at = numbers.stop
        return Rows(pa.RecordBatch.from_pydict({"n": list(numbers)}), {"at": self.at})

    def close(self) -> None:
        """Nothing is open."""


class Line:
    """A source, a queue and a sink over one store, which can be opened anew as after a crash."""

    def __init__(self) -> None:
        self.store, self.targets = MemoryStore(), Targets()
        with self.store.write() as txn:
            txn.put(TERM_KEY, TERM)
        self.reopen()

    def reopen(self) -> None:
        """Lose all but the store and what was written."""
        queues = Queues()
        queues.add(Queue(QUEUE), 0)
        self.sources = SourceTurn(self.store, TERM, lambda: 0, Pressure(PressureConfig()), queues)
        self.sinks = SinkTurn(self.store, TERM, lambda: 0)
        with self.store.read() as snapshot:
            read, written = read_record(snapshot, QUEUE.app, SOURCE), read_record(snapshot, QUEUE.app, SINK)
        self.source = opened(Numbers(read.position))
        self.source.record = read
        writer = self.targets.open("app", "out", written.position)
        if written.position is None:
            keep_beginning(self.store, QUEUE.app, SINK, writer)
        self.sink = OpenSink(app=QUEUE.app, name="out", number=SINK, instance=QUEUE, writer=writer)

    def asked(self, rows_max: int = 10) -> Offer:
        """Return what the source offers."""
        offer = self.sources.ask(self.source, rows_max)
        assert isinstance(offer, Offer)
        return offer

    def rows(self) -> list[int]:
        """Return what was written, in order."""
        return sorted(ast.literal_eval(text)["n"] for text in self.targets.written("app", ["out"])["out"].elements())


def opened(reader: SourceReader) -> OpenSource:
    """Return a source whose rows all go to the queue."""
    with MemoryStore().read() as nothing:
        record = read_record(nothing, QUEUE.app, SOURCE)
    return OpenSource(app=QUEUE.app, name="numbers", number=SOURCE, reader=reader, outlets=(OUTLET,), record=record)


@given(st.lists(st.sampled_from(["read", "write", "crash in a read", "crash in a write"]), max_size=40))
def test_a_crash_between_any_two_steps_neither_loses_nor_doubles_a_row(steps: list[str]) -> None:
    """A source's rows and position are one commit; a sink cuts off what it wrote and did not commit."""
    line = Line()
    for step in [*steps, *["read", "write"] * 21]:
        if "read" in step:
            offer = line.asked(7)
            if step == "read":
                line.sources.commit([offer])
                tell_stored(offer)
        else:
            written = line.sinks.write(line.sink, 5)
            if step == "write" and written is not None:
                line.sinks.commit([written])
        if "crash" in step:
            line.reopen()
    while (written := line.sinks.write(line.sink, 50)) is not None:
        line.sinks.commit([written])
    assert line.source.ended
    assert line.source.record.stored == 100
    assert line.rows() == list(range(100))


def test_a_full_store_refuses_a_commit_whole_and_takes_it_later() -> None:
    """The caller still has the rows, and commits them again."""
    line = Line()
    offer = line.asked()
    line.store.bytes_max = 1
    with pytest.raises(StoreFull):
        line.sources.commit([offer])
    assert line.source.rows == line.source.record.stored == 0
    line.store.bytes_max = None
    line.sources.commit([offer])
    written = line.sinks.write(line.sink)
    assert written is not None
    line.store.bytes_max = 1
    with pytest.raises(StoreFull):
        line.sinks.commit([written])
    line.store.bytes_max = None
    line.sinks.commit([written])
    assert (line.source.rows, line.rows()) == (10, list(range(10)))
    assert line.sinks.write(line.sink) is None


def test_whoever_lost_the_store_commits_nothing_and_is_told_that_it_is_not_the_disk() -> None:
    """A lost fence was told as a full disk, and tried again for ever."""
    line = Line()
    line.sources.commit([line.asked()])
    offer, written = line.asked(), line.sinks.write(line.sink)
    assert written is not None
    with line.store.write() as txn:
        txn.put(TERM_KEY, b"\x02")
    with pytest.raises(StoreTaken, match="another node has taken over"):
        line.sources.commit([offer])
    with pytest.raises(StoreTaken, match="two nodes were started on the same data"):
        line.sinks.commit([written])
    with line.store.read() as snapshot:
        assert read_queue(snapshot, QUEUE).waiting_rows == 10


@pytest.mark.parametrize("failure", [ValueError("no"), SystemExit(3), pa.ArrowInvalid("no")])
def test_whatever_a_users_source_raises_is_told_as_its_error(failure: BaseException) -> None:
    """The thread that asks it goes on with the others."""

    class Broken(Numbers):
        def poll(self, rows_max: int, now_us: int) -> Poll:
            raise failure

    with pytest.raises(ConnectorError, match="source 'numbers' cannot go on"):
        Line().sources.ask(opened(Broken(None)), 1)


def test_a_source_whose_schema_is_too_large_to_travel_is_told_so_and_stores_nothing() -> None:
    """An instance that runs elsewhere could never be sent its rows."""

    class Wide(Numbers):
        def poll(self, rows_max: int, now_us: int) -> Poll:
            names = [f"{number:05d}" + "x" * 1_000 for number in range(3_000)]
            return Rows(pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names), {"at": 1})

    with pytest.raises(ConnectorError, match=f"3,000 columns take .* more than {SCHEMA_BYTES_MAX:,} cannot travel"):
        Line().sources.ask(opened(Wide(None)), 1)
