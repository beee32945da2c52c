"""From figures to sentences and pictures: what limits a ratio that was not reached, and the plots."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plots import draw_bars, draw_breakdown, draw_latencies
from bench.processes import Machine

Details = Mapping[str, Any]


def limits(details: Details, missed: Sequence[str]) -> dict[str, str]:
    """Say, for every ratio that was not reached, what the measurements show to be in the way."""
    return {name: _LIMITS[name](details) for name in missed}


def _chain_limit(details: Details) -> str:
    one = next(iter(details["chain"].values()))
    costs, hops = one["costs"], len(one["by_chain"])
    total = sum(part["total_ms"] for part in one["by_chain"].values())
    waiting = sum(part["schedule_ms"] + part["queue_ms"] for part in one["by_chain"].values())
    return (
        f"of the mean latency, {total:.2f} ms pass in {hops} operators ({waiting:.2f} ms of it waiting for a worker, "
        f"the rest computing) and {one['rest_ms']:.2f} ms in pumps, commits and messages; a turn costs the node "
        f"{costs['node_cpu_us_per_turn']:.0f} us and its workers {costs.get('workers_cpu_us_per_turn', 0):.0f} us "
        f"of CPU; the machine was {costs['machine_busy_share']:.0%} busy"
    )


def _apps_limit(details: Details) -> str:
    return "; ".join(f"{name}: {_app_sentence(rounds[-1])}" for name, rounds in details["apps"].items())


def _app_sentence(one: Details) -> str:
    costs, parts = one["costs"], one["breakdown"]
    return (
        f"p99 {one['summary']['p99']:.1f} ms, a row waits {parts['schedule_ms']:.2f} ms for a worker, computes "
        f"{parts['compute_ms']:.2f} ms and spends {one['rest_ms']:.2f} ms in pumps and commits; the node's process "
        f"uses {costs['node_cores']:.2f} cores, {costs['turns_per_s']:.0f} turns/s, "
        f"machine {costs['machine_busy_share']:.0%} busy"
    )


def _throughput_limit(details: Details) -> str:
    one = details["saturated"]
    costs = one["costs"]
    return (
        f"workers used {costs.get('workers_cores', 0):.2f} cores, the node's process {costs['node_cores']:.2f} "
        f"(source, sink and scheduler run there), machine {costs['machine_busy_share']:.0%} busy; functions "
        f"computed for {costs['compute_us_per_turn']:.0f} us of the "
        f"{costs.get('workers_cpu_us_per_turn', 0):.0f} us of CPU of a turn of {one['rows_per_turn']:.0f} rows"
    )


_LIMITS: dict[str, Callable[[Details], str]] = {
    "p50_vs_structured_streaming": _chain_limit,
    "p99_vs_structured_streaming_8_apps": _apps_limit,
    "throughput_vs_bare_functions": _throughput_limit,
    "p99_100_apps_vs_1_app": _apps_limit,
}


def draw_figures(details: Details, machine: Machine, output: Path) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    draw = _Drawing(details, machine, output)
    return [draw.latencies(), draw.throughput(), draw.breakdown(), draw.many_apps()]


class _Drawing:
    """Knows which figures go into which plot."""

    def __init__(self, details: Details, machine: Machine, output: Path) -> None:
        self._details, self._machine, self._output = details, machine, output

    def latencies(self) -> Path:
        """Ours and theirs, for the chain and for several apps."""
        theirs = self._details["structured_streaming"].get("measurements", {})
        chain_name, chain = next(iter(self._details["chain"].items()))
        count, rounds = list(self._details["apps"].items())[1]
        panels = {
            f"5 operators, {chain_name}": {"Headwater, not fused": chain["percentiles"]}
            | {
                f"Structured: {_told(name)}": theirs[name]["percentiles"] for name in theirs if name.startswith("chain")
            },
            f"keyed average, {count}": {"Headwater": rounds[-1]["percentiles"]}
            | {
                f"Structured: {_told(name)}": theirs[name]["percentiles"]
                for name in theirs
                if name.startswith("average")
            },
        }
        return draw_latencies(panels, self._machine, self._path("latency"))

    def throughput(self) -> Path:
        """The saturated chain beside the bare functions."""
        bare = self._details["bare_rows_per_s"]
        bars = {"Headwater, on Spark": self._details["saturated"]["rows_per_s"], "bare Python loops": bare}
        title = f"chain of 5, saturated, batches of {self._details['saturated']['rows_per_turn']:.0f} rows"
        return draw_bars(title, "rows per second", bars, self._machine, self._path("throughput"), goal=0.6 * bare)

    def breakdown(self) -> Path:
        """Where a row's time goes in the chain that is not fused."""
        chain_name, chain = next(iter(self._details["chain"].items()))
        kinds = {"queue_ms": "behind other rows", "schedule_ms": "waiting for a worker", "compute_ms": "computing"}
        parts = {name: {told: part[kind] for kind, told in kinds.items()} for name, part in chain["by_chain"].items()}
        parts["outside operators"] = {"pumps, commits, messages": max(0.0, chain["rest_ms"])}
        title = f"where the time goes, {chain_name}, not fused"
        return draw_breakdown(title, parts, self._machine, self._path("breakdown"))

    def many_apps(self) -> Path:
        """One app and many of them."""
        lines = {f"Headwater, {name}": rounds[-1]["percentiles"] for name, rounds in self._details["apps"].items()}
        return draw_latencies({"keyed averages at 100 rows/s each": lines}, self._machine, self._path("apps"))

    def _path(self, name: str) -> Path:
        return self._output.with_name(f"{self._output.stem}-{name}.png")


def _told(name: str) -> str:
    return {
        "chain_sql": "Spark SQL",
        "chain_arrow": "mapInArrow",
        "chain_sql_beyond_guide": "Spark SQL, internal options",
        "average": "RocksDB",
        "average_state_in_memory": "state in memory",
        "average_two_partitions": "RocksDB, 2 partitions",
    }[name]
