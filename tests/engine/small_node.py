"""A node without Spark, sockets or a clock: a flow on a store, where sources, turns and sinks move when a test says so.

The turns, queues and the ledger are the real ones. Feeding a source and emptying a sink are what the runtime's pumps
do, without their threads.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.connectors import Rows
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.engine.dequeue import advance, take
from headwater.engine.ledger import Ledger, SourceCounts, read_ledger
from headwater.engine.plans import channel_of, plan_chain, source_outlets
from headwater.engine.queue_records import QueueRecord, append, read_queue, shed_oldest
from headwater.engine.reports import TurnReport
from headwater.engine.source_commit import lay_out, put_all, without_giants
from headwater.engine.times import read_times
from headwater.engine.turn import Assignment, Prepared, TurnRunner, commit, prepare
from headwater.model.batch import Mark, Stamp, encode_mark
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Store
from headwater.model.store_layout import TERM_KEY, entries_prefix, state_prefix
from headwater.model.time import END_OF_TIME
from headwater.storage.memory_store import MemoryStore

Row = dict[str, Any]
ALL = 1 << 40  # rows or bytes


class SmallNode:
    """One app on one store."""

    def __init__(self, flow: Flow, *, store: Store | None = None, chaining: bool = True, number: int = 1) -> None:
        """Deploy the flow on a store in which nobody has this number."""
        self.app = AppId(number)
        self.graph: Graph = compile_flow(flow, chaining=chaining)
        self.store: Store = MemoryStore() if store is None else store
        self.now_us = 0
        self.fed = SourceCounts()
        self._batches = 0
        self._plans = {
            InstanceId(self.app, number): (plan, plan.open())
            for chain in self.graph.chains
            for plan in [plan_chain(self.graph, self.app, chain)]
            for number in chain.instances
        }
        self._term = 0
        self.begin_term()

    def begin_term(self) -> None:
        """Let a new node own the store; workers of the one before are fenced off."""
        self._term += 1
        with self.store.write() as txn:
            txn.put(TERM_KEY, self.term)
        self.runner = TurnRunner(self.store, self.term, self._plans, lambda: self.now_us)

    @property
    def term(self) -> bytes:
        """What tells this node's workers from those of earlier ones."""
        return self._term.to_bytes(8, "big")

    @property
    def instances(self) -> list[InstanceId]:
        """The instances of all chains."""
        return list(self._plans)

    def instance(self, name: str, index: int = 0) -> InstanceId:
        """Return an instance of the chain that an operator begins, or the queue of a sink."""
        return InstanceId(self.app, self.graph.targets(name)[index])

    def feed(
        self, rows: Sequence[Row] | pa.RecordBatch, *, stamps: tuple[Stamp, ...] = (), source: str | None = None
    ) -> None:
        """Store rows as a source of the flow, the first unless it is named, does: in the queues behind it."""
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows))
        name = source if source is not None else next(iter(self.graph.sources))
        outlets, schemas = source_outlets(self.graph, name), self.runner.schemas
        offered = without_giants(Rows(batch, {}))
        count = offered.batch.num_rows
        puts = lay_out(
            offered,
            outlets,
            self._number(name),
            schemas,
            batches=self._batches,
            stamps=stamps,
            now_us=self.now_us,
        )
        with self.store.write() as txn:
            schemas.ensure(txn, self.app, schemas.known(batch.schema))
            put_all(txn, self.app, puts)
        self._batches += 1
        self.fed = replace(
            self.fed,
            stored=self.fed.stored + count,
            copied=self.fed.copied + count * max(0, len(outlets) - 1),
            unread=self.fed.unread + (0 if outlets else count),
            too_large=self.fed.too_large + offered.too_large,
        )

    def end(self, source: str | None = None) -> None:
        """Say that a source has no more rows."""
        name = source if source is not None else next(iter(self.graph.sources))
        sender = channel_of(self._number(name), 0)
        with self.store.write() as txn:
            for outlet in source_outlets(self.graph, name):
                if outlet.marks:
                    encoded = encode_mark(self.now_us, Mark(sender, outlet.source, END_OF_TIME))
                    for target in outlet.targets:
                        append(txn, InstanceId(self.app, target), [(0, encoded)])

    def _number(self, name: str) -> int:
        return [declared.name for declared in self.graph.declarations].index(name)

    def turn(self, at: str | InstanceId, rows_max: int = ALL, *, condemn: str = "") -> TurnReport:
        """Run one turn of one instance."""
        instance = at if isinstance(at, InstanceId) else self.instance(at)
        (report,) = self.runner.run([Assignment(instance, rows_max, condemn)])
        return report

    def pack(self, *parts: tuple[str | InstanceId, int]) -> dict[int, TurnReport]:
        """Run several instances in one turn and return the reports by instance number."""
        assignments = [
            Assignment(at if isinstance(at, InstanceId) else self.instance(at), rows_max) for at, rows_max in parts
        ]
        return {report.instance: report for report in self.runner.run(assignments)}

    def prepared(self, at: str | InstanceId, rows_max: int = ALL) -> Prepared:
        """Take rows and compute, as a worker does that has not committed yet."""
        instance = at if isinstance(at, InstanceId) else self.instance(at)
        plan, chain = self._plans[instance]
        schemas = self.runner.schemas
        with self.store.read() as snapshot:
            taken = take(snapshot, instance, rows_max, schemas, self.now_us)
            times = read_times(snapshot, instance, len(plan.operators)) if plan.timed else None
        return prepare(plan, chain, taken, self.store, schemas, lambda: self.now_us, "", times)

    def commit(self, prepared: Prepared, term: bytes | None = None) -> TurnReport:
        """Commit what a worker has computed."""
        (report,) = commit(
            self.store, self.term if term is None else term, [prepared], self.runner.schemas, self.now_us
        )
        return report

    def shed(self, at: str | InstanceId, bytes_wanted: int) -> None:
        """Drop the oldest rows of a queue, as a source does that finds the disk budget used up."""
        with self.store.write() as txn:
            shed_oldest(txn, at if isinstance(at, InstanceId) else self.instance(at), bytes_wanted, behind_rows=0)

    def settle(self, rows_max: int = ALL, rounds_max: int = 1_000) -> None:
        """Run turns until only sinks have rows waiting."""
        for _ in range(rounds_max):
            ready = [one for one in self.instances if self.has_work(one)]
            if not ready:
                return
            for instance in ready:
                report = self.turn(instance, rows_max)
                assert report.trouble is None, report.trouble
        raise AssertionError(f"after {rounds_max} rounds rows still wait: {self.ledger()}")

    def has_work(self, instance: InstanceId) -> bool:
        """Whether rows or marks wait for an instance."""
        record = self.queue(instance)
        return record.waiting_rows > 0 or record.put_marks > record.taken_marks

    def queue(self, at: str | InstanceId) -> QueueRecord:
        """Return the record of a queue."""
        with self.store.read() as snapshot:
            return read_queue(snapshot, at if isinstance(at, InstanceId) else self.instance(at))

    def waiting(self, at: str | InstanceId) -> list[Row]:
        """Return the rows that lie in a queue, in order."""
        instance = at if isinstance(at, InstanceId) else self.instance(at)
        with self.store.read() as snapshot:
            batch = take(snapshot, instance, ALL, self.runner.schemas, self.now_us).batch
        return [] if batch is None else batch.to_pylist()

    def stamps(self, at: str) -> tuple[Stamp, ...]:
        """Return the latency sample that lies in a queue."""
        with self.store.read() as snapshot:
            return take(snapshot, self.instance(at), ALL, self.runner.schemas, self.now_us).stamps

    def write_out(self, sink: str, rows_max: int = ALL) -> list[Row]:
        """Let a sink take rows and return them."""
        instance = self.instance(sink)
        with self.store.read() as snapshot:
            taken = take(snapshot, instance, rows_max, self.runner.schemas, self.now_us)
        with self.store.write() as txn:
            advance(txn, taken, read_queue(txn, instance), self.now_us)
        return [] if taken.batch is None else taken.batch.to_pylist()

    def state_of(self, operator: str) -> dict[bytes, bytes]:
        """Return the keyed state of an operator as it is stored."""
        number = [declared.name for declared in self.graph.declarations].index(operator)
        with self.store.read() as snapshot:
            return dict(snapshot.scan(state_prefix(self.app, number)))

    def contents(self) -> dict[bytes, bytes]:
        """Return everything that the store holds."""
        with self.store.read() as snapshot:
            return dict(snapshot.scan(b""))

    def entries(self, at: str) -> list[bytes]:
        """Return the keys of the entries of a queue."""
        with self.store.read() as snapshot:
            return [key for key, _ in snapshot.scan(entries_prefix(self.instance(at)))]

    def ledger(self) -> Ledger:
        """Add up the ledger."""
        with self.store.read() as snapshot:
            return read_ledger(snapshot, self.app, self.graph, [self.fed])
