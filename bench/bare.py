"""The same functions without an engine: what one process per core reaches in a plain loop."""

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from typing import Final

from bench.feeds import POOL_ROWS, line_pool
from bench.workload import Batch, run_chain

WARMUP_S: Final = 0.5
START_S: Final = 60.0


def rows_per_second(batch_rows: int, processes: int, measure_s: float) -> float:
    """Return how many rows a second the chain takes in so many processes at once, on batches of this size."""
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(processes)
    results: multiprocessing.Queue[float] = context.Queue()
    arguments = (batch_rows, measure_s, together, results)
    workers = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    rates = [results.get(timeout=START_S + measure_s) for _ in workers]
    for worker in workers:
        worker.join()
    return sum(rates)


def _work(batch_rows: int, measure_s: float, together: Barrier, results: "multiprocessing.Queue[float]") -> None:
    size = max(1, min(batch_rows, POOL_ROWS))
    pool = line_pool()
    batches = [pool.slice(start, size) for start in range(0, POOL_ROWS - size + 1, size)]
    together.wait(START_S)
    _loop(batches, WARMUP_S)
    results.put(_loop(batches, measure_s))


def _loop(batches: list[Batch], seconds: float) -> float:
    """Run the chain on one batch after another and return the rows per second."""
    rows = taken = 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        batch = batches[taken % len(batches)]
        run_chain(batch)
        rows += batch.num_rows
        taken += 1
    return rows / spent
