"""Many thousand stories of the simulator, in chunks that are kept: what is done stays done, and the rest goes on later.

    python -m bench.campaign --seeds 20000 --chunks out/campaign --json bench/results/sim.json

A chunk is a range of seeds whose report is written when all its stories are told. The report of the campaign is the sum
of its chunks, and says of which state of the code they are: chunks of another state are told anew.
"""

import argparse
import json
import multiprocessing
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import headwater
from headwater.console.sim import Tally
from headwater.sim.story import told
from headwater.sim.troubled import beyond_limits

CHUNK: Final = 100
SUMMED: Final = ("rings", "excused", "happened")


def code_state() -> str:
    """Return a digest of the code that decides what happens in a story."""
    digest, root = blake2b(digest_size=8), Path(headwater.__file__).parent
    for room in ("model", "operators", "dataflow", "engine", "overlay", "node", "planner", "sim"):
        for path in sorted((root / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def tell_chunk(first: int, count: int, faults: str, path: Path, state: str) -> None:
    """Tell the stories of some seeds, and keep their report."""
    tally = Tally(faults=faults, nodes=None)
    for seed in range(first, first + count):
        tally.add(told(seed, faults))
    path.write_text(json.dumps({"state": state, **tally.report()}) + "\n", encoding="utf-8")


def lacking(seeds: int, chunks: Path, state: str) -> Iterator[tuple[int, int, Path]]:
    """Go through the chunks that are not there yet, or are of another state of the code."""
    for first in range(0, seeds, CHUNK):
        path = chunks / f"{first:06}.json"
        if not path.exists() or json.loads(path.read_text())["state"] != state:
            yield first, min(CHUNK, seeds - first), path


def summed(chunks: Path, state: str) -> dict[str, Any]:
    """Return the report of all chunks of one state of the code."""
    reports = [json.loads(path.read_text()) for path in sorted(chunks.glob("*.json"))]
    reports = [report for report in reports if report["state"] == state]
    total: dict[str, Any] = {
        "seeds": sum(report["seeds"]["count"] for report in reports),
        "failed": sum(report["failed"] for report in reports),
        "failures": [failure["replay"] for report in reports for failure in report["failures"]],
        "apps": sum(report["apps"] for report in reports),
        "events": sum(report["events"] for report in reports),
        "virtual_hours": round(sum(report["virtual_hours"] for report in reports), 1),
        "took_s_of_all_processes": round(sum(report["took_s"] for report in reports)),
        "healed_in_s_max": max((report["healed_in_s"]["max"] or 0 for report in reports), default=0),
    }
    for name in SUMMED:
        total[name] = dict(sum((Counter(report[name]) for report in reports), Counter()))
    total["beyond_limits"] = beyond_limits(total["excused"], total["apps"])
    return total


def main() -> None:
    """Tell what is lacking, and write the report of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--faults", default="stormy")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chunks", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    given.chunks.mkdir(parents=True, exist_ok=True)
    state = code_state()
    wanted = list(lacking(given.seeds, given.chunks, state))
    with ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(tell_chunk, first, count, given.faults, path, state) for first, count, path in wanted]
        for number, task in enumerate(as_completed(tasks), start=1):
            task.result()
            report = write_report(given.seeds, given.faults, given.chunks, given.json)
            print(f"{number} of {len(wanted)} chunks; {report['failed']} failed", flush=True)
    report = write_report(given.seeds, given.faults, given.chunks, given.json)
    if report["failed"] or report["beyond_limits"]:
        sys.exit("; ".join([f"{report['failed']} stories failed", *report["beyond_limits"]]))


def write_report(wanted: int, faults: str, chunks: Path, output: Path) -> dict[str, Any]:
    """Write the report of what is done so far: a campaign that is stopped leaves one, too."""
    state = code_state()
    report = {
        "command": f"python -m bench.campaign --seeds {wanted} --faults {faults}",
        "seeds_wanted": wanted,
        "code": state,
        "python": platform.python_version(),
        **summed(chunks, state),
    }
    output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


if __name__ == "__main__":
    main()
