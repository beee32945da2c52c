"""What a turn costs by itself: read, compute, commit, timed one by one against a store of its own.

No worker, no socket and no scheduler: the difference to a real turn's time is what those cost.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.feeds import CountingSink, PacedSource
from bench.watching import Figures
from bench.workload import Batch, Readings, sliding_average
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import flow, source
from headwater.engine.dequeue import take
from headwater.engine.plans import ChainPlan, plan_chain
from headwater.engine.queue_records import append
from headwater.engine.schemas import Schemas
from headwater.engine.turn import commit, prepare
from headwater.model.batch import encode_entry
from headwater.model.ids import AppId, InstanceId
from headwater.operators.chain import OpenChain
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.clock import now_us

APP: Final = AppId(1)
STORE_BYTES: Final = 1 << 30


@dataclass(slots=True)
class Bench:
    """A store with one app, the keyed average, whose turns are run by hand."""

    store: LmdbStore
    term: bytes
    plan: ChainPlan
    chain: OpenChain
    schemas: Schemas

    def put(self, batch: Batch) -> None:
        """Let these rows wait."""
        known = self.schemas.known(batch.schema)
        entry = encode_entry(known.identity, now_us(), batch.num_rows, (), known.encode(batch))
        with self.store.write() as txn:
            self.schemas.ensure(txn, self.plan.app, known)
            append(txn, self._instance, [(batch.num_rows, entry)])

    def turn(self, rows: int) -> tuple[float, float, float]:
        """Run one turn and return the seconds of reading, computing and committing."""
        began = time.perf_counter()
        with self.store.read() as snapshot:
            taken = take(snapshot, self._instance, rows, self.schemas, now_us())
        read = time.perf_counter()
        prepared = prepare(self.plan, self.chain, taken, self.store, self.schemas, now_us, "")
        computed = time.perf_counter()
        commit(self.store, self.term, [prepared], self.schemas, now_us())
        return read - began, computed - read, time.perf_counter() - computed

    @property
    def _instance(self) -> InstanceId:
        return InstanceId(APP, self.plan.first_instance)


def turn_costs(rows: int, turns: int) -> Figures:
    """Return the median cost of a turn of so many rows, in microseconds."""
    readings = Readings()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory:
        bench = _bench(Path(directory))
        batch = readings.batch(range(rows), [now_us()] * rows)
        times = []
        for _ in range(turns):
            bench.put(batch)
            times.append(bench.turn(rows))
        bench.store.close()
    read, compute, stored = (median(column) * 1e6 for column in zip(*times, strict=True))
    return {
        "read_us": round(read, 1),
        "compute_us": round(compute, 1),
        "commit_us": round(stored, 1),
        "total_us": round(read + compute + stored, 1),
    }


def _bench(directory: Path) -> Bench:
    made = flow("turns", source(PacedSource(1.0)).key_by("sensor").stateful(sliding_average).sink(CountingSink()))
    graph = compile_flow(made, chaining=True)
    plan = plan_chain(graph, APP, graph.chains[-1])
    store = LmdbStore(directory, disk_bytes=STORE_BYTES, power_safe=False)
    return Bench(store, store.own(), plan, plan.open(), Schemas())
