"""Operator benchmark: each operator alone, against a bare vectorised function and against Spark's own operator.

    python -m bench.operators --quick --json operators.json

One process, one core. An operator runs as in a turn, on whole batches, and its state is read from and committed to an
LMDB store after every batch; queues are left out, they are the engine benchmark's. The bare function does the same work
with its state in memory. Both sides take turns, a round at a time, since a machine's speed changes within seconds.
README.md says what each figure means.
"""

import gc
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa

import headwater as hw
from bench import spark_operators
from bench.command_line import run_as_told
from bench.operator_cases import CASES, INSTANCES, SCHEMA, Bare, Case, Step, steps, watermarks
from bench.plots import draw_bars
from bench.processes import this_machine
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Spread
from headwater.engine.keyed_state import StateMemory, StoredState
from headwater.engine.plans import Outlet, plan_chain
from headwater.engine.spreading import spread
from headwater.engine.turn import commit_state
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_layout import state_prefix
from headwater.operators.chain import OpenChain, Segment, Turnover
from headwater.operators.watermarks import OperatorTime
from headwater.storage.lmdb_store import LmdbStore

Tell = Callable[[str], None]

APP: Final = AppId(1)
HERE: Final = InstanceId(APP, 0)
STORE_BYTES: Final = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    rows: int = 1_000  # of a batch
    keys: int = 1_000
    batches: int = 60  # of a round, for each side
    rounds: int = 7
    key_counts: tuple[int, ...] = (1, 1_000, 1_000_000)
    key_batches: int = 200
    spark_rows: int = 2_000_000
    spark: bool = True


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form or of the full one."""
    return Plan(batches=40, rounds=5, key_batches=60, spark_rows=400_000) if quick else Plan()


class Ours:
    """An operator as a worker runs it, over a store of its own."""

    def __init__(self, case: Case, directory: Path) -> None:
        """Compile the flow and open the chain that holds the operator."""
        assert case.flow is not None
        one, other = (hw.read.iterable([], schema=SCHEMA) for _ in range(2))
        graph = compile_flow(hw.flow("bench", case.flow(one, other).sink(hw.to.nothing())))
        chain = next(one for one in graph.chains if "operator" in one.operators)
        self._plan = plan_chain(graph, APP, chain)
        self._chain: OpenChain = self._plan.open()
        self._times = [OperatorTime() for _ in self._plan.operators]
        self.store = LmdbStore(directory, disk_bytes=STORE_BYTES)
        self._memory = StateMemory()
        self._turns = 0
        self.made_rows = 0

    def __call__(self, source: int, batch: pa.RecordBatch, watermark_us: int) -> None:
        """Run a batch and commit its state."""
        known = self._memory.recall(HERE, self._turns)
        turnover = Turnover(
            lambda index: StoredState(
                self.store, state_prefix(APP, self._plan.numbers[index]), known.setdefault(index, {})
            ),
            self._times if self._plan.timed else (),
            self._turns,
        )
        result = self._chain.run([Segment([(source, batch)], watermark_us)], turnover)
        if result.state:
            with self.store.write() as txn:
                commit_state(txn, self._plan, result)
        self._times = result.times
        self._turns += 1
        self._memory.keep(HERE, self._turns, known, result.state)
        self.made_rows += sum(count.made for count in result.counts[-1:])

    def state(self) -> tuple[int, int]:
        """Return how many entries of keyed state there are, and their bytes."""
        entries = size = 0
        with self.store.read() as snapshot:
            for number in self._plan.numbers:
                prefix = state_prefix(APP, number)
                for key, value in snapshot.scan(prefix):
                    entries += 1
                    size += len(key) + len(value)
        return entries, size


class Routing:
    """`key_by`, which is a matter of routing."""

    def __init__(self) -> None:
        """Spread over some instances."""
        self._outlet = Outlet(Spread.KEY, ("sensor",), tuple(range(INSTANCES)))

    def __call__(self, source: int, batch: pa.RecordBatch, watermark_us: int) -> None:
        """Split a batch by key."""
        spread(self._outlet, batch, 0, 0)


def measure(case: Case, plan: Plan, directory: Path) -> dict[str, Any]:
    """Return the rows per second of both sides, round by round, on the same batches."""
    made = steps(plan.batches * (plan.rounds + 1), plan.rows, plan.keys, case.inputs)
    marks = list(watermarks(made))
    ours: Ours | Routing = Routing() if case.flow is None else Ours(case, directory)
    bare = case.bare()
    shares, our_rates, bare_rates = [], [], []
    gc.collect()
    gc.freeze()  # as a worker does: walking all modules again and again would be charged to whoever is running
    for number in range(plan.rounds + 1):  # the first warms up
        part = slice(number * plan.batches, (number + 1) * plan.batches)
        ours_s = _timed_ours(ours, made[part] * case.repeat, marks[part] * case.repeat)
        bare_s = _timed_bare(bare, made[part] * case.repeat)
        if number:
            rows = plan.rows * plan.batches * case.repeat
            our_rates.append(rows / ours_s)
            bare_rates.append(rows / bare_s)
            shares.append(bare_s / ours_s)
    figures = {
        "rows_per_s": round(median(our_rates)),
        "bare_rows_per_s": round(median(bare_rates)),
        "vs_bare": round(median(shares), 3),
        "rounds": [round(share, 3) for share in shares],
    }
    if isinstance(ours, Ours):
        entries, size = ours.state()
        figures |= {"state_entries": entries, "state_bytes": size}
        figures |= {"state_bytes_per_key": round(size / min(plan.keys, max(1, entries)), 1)} if entries else {}
        ours.store.close()
    return figures


def _timed_ours(ours: Ours | Routing, made: Sequence[Step], marks: Sequence[int]) -> float:
    began = time.process_time()
    for (source, batch), watermark_us in zip(made, marks, strict=True):
        ours(source, batch, watermark_us)
    return time.process_time() - began


def _timed_bare(bare: Bare, made: Sequence[Step]) -> float:
    began = time.process_time()
    for source, batch in made:
        bare(source, batch)
    return time.process_time() - began


def cost_of_keys(case: Case, plan: Plan, keys: int, directory: Path) -> dict[str, Any]:
    """Return what a batch costs with so many keys, once most of them are known."""
    made = steps(plan.key_batches, plan.rows, keys, case.inputs)
    marks = list(watermarks(made))
    ours = Ours(case, directory)
    warm_up = plan.key_batches // 4
    _timed_ours(ours, made[:warm_up], marks[:warm_up])
    spent_s = _timed_ours(ours, made[warm_up:], marks[warm_up:])
    entries, size = ours.state()
    ours.store.close()
    rows = plan.rows * (plan.key_batches - warm_up)
    return {
        "rows_per_s": round(rows / spent_s),
        "us_per_batch": round(spent_s / (plan.key_batches - warm_up) * 1e6),
        "state_entries": entries,
        "bytes_per_entry": round(size / entries, 1) if entries else 0.0,
    }


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Measure all cases and return ratios and details; write them, and a figure, if there is somewhere to."""
    machine = this_machine()
    details: dict[str, Any] = {"machine": str(machine), "batch_rows": plan.rows, "keys": plan.keys}
    operators: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as place:
        for case in CASES:
            tell(f"{case.name}: Headwater and the bare function in turn")
            operators[case.name] = measure(case, plan, Path(place) / case.name)
        keyed = [case for case in CASES if case.name in ("tumbling", "dedup", "join")]
        details["keys_cost"] = {
            case.name: {
                str(keys): cost_of_keys(case, plan, keys, Path(place) / f"{case.name}-{keys}")
                for keys in plan.key_counts
            }
            for case in keyed
        }
    if plan.spark:
        tell("Spark's own operators, on one core")
        for name, rate in spark_operators.rates(plan.spark_rows, plan.keys).items():
            operators[name]["spark_rows_per_s"] = round(rate)
            operators[name]["vs_spark"] = round(operators[name]["rows_per_s"] / rate, 3)
    details["operators"] = operators
    ratios = {f"{case.name}_vs_bare": operators[case.name]["vs_bare"] for case in CASES}
    details["goals"] = {f"{case.name}_vs_bare": f">= {case.goal}" for case in CASES if case.goal is not None}
    details["reached"] = {
        f"{case.name}_vs_bare": operators[case.name]["vs_bare"] >= case.goal for case in CASES if case.goal is not None
    }
    details["limits"] = {name: _limit(name, operators) for name, met in details["reached"].items() if not met}
    result: dict[str, Any] = {"ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(_draw(operators, machine, output))]
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def _limit(name: str, operators: dict[str, Any]) -> str:
    figures = operators[name.removesuffix("_vs_bare")]
    return (
        f"a batch takes {1e9 / figures['rows_per_s']:.0f} us against {1e9 / figures['bare_rows_per_s']:.0f} us; "
        f"rounds {figures['rounds']}"
    )


def _draw(operators: dict[str, Any], machine: Any, output: Path) -> Path:
    bars = {}
    for name, figures in operators.items():
        bars[f"{name}, Headwater"] = figures["rows_per_s"]
        bars[f"{name}, bare"] = figures["bare_rows_per_s"]
        if "spark_rows_per_s" in figures:
            bars[f"{name}, Spark"] = figures["spark_rows_per_s"]
    title = "rows per second and core, batches of 1,000 rows, 1,000 keys"
    return draw_bars(title, "rows per second", bars, machine, output.with_name(f"{output.stem}-rates.png"))


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark, as `headwater bench operators` does."""
    return run_plan(plan_for(quick), output, tell)


if __name__ == "__main__":
    run_as_told(__doc__, run)
