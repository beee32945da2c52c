"""Drives a cluster through an experiment: apps are deployed and stopped, rows looked at, cores counted."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from bench.edge.sites import EdgeCluster
from bench.edge.users import Arrival, Deployed, Users, Wanted, deployed
from bench.edge.watched import Note
from bench.processes import usage
from headwater.model.errors import EngineError
from headwater.model.histogram import Histogram

Answer = TypeVar("Answer")

DEPLOY_S: Final = 120.0  # until all must run
LOOK_S: Final = 0.1


class Driver:
    """One cluster, its users, and all that was noted."""

    def __init__(self, cluster: EdgeCluster) -> None:
        """Begin with a cluster that runs."""
        self.cluster = cluster
        self._notes: list[Note] = []

    def deploy(self, apps: Sequence[Wanted], rate: float | None = None) -> tuple[list[Arrival], list[Deployed]]:
        """Let apps arrive, so many a second or all at once, and wait until all run."""
        arrivals = self._do(lambda users: users.submit(apps, rate))
        gives_up = time.monotonic() + DEPLOY_S
        while True:
            self._notes += self.cluster.notes()
            found = deployed(arrivals, self._notes)
            runs = [one for one in found if one is not None]
            if len(runs) == len(found):
                self._notes.clear()
                return arrivals, runs
            if time.monotonic() > gives_up:
                raise EngineError(f"{len(found) - len(runs)} of {len(apps)} apps do not run after {DEPLOY_S:.0f} s")
            time.sleep(LOOK_S)

    def stop(self, arrivals: Sequence[Arrival]) -> None:
        """Stop apps."""
        self._do(lambda users: users.stop(arrivals))

    def _do(self, act: Callable[[Users], Awaitable[Answer]]) -> Answer:
        async def do() -> Answer:
            async with Users(self.cluster.peers) as users:
                return await act(users)

        return asyncio.run(do())

    def latency(self, seconds: float) -> Histogram:
        """Return the latencies of the rows that reach a sink in the next seconds."""
        before = self.cluster.latencies()
        time.sleep(seconds)
        return self.cluster.latencies().since(before)


def cores_during(act: Callable[[], Answer]) -> tuple[Answer, dict[str, float]]:
    """Do something, and return how many cores we and others used meanwhile, and how busy all of the machine was."""
    before, began = usage(), time.monotonic()
    answer = act()
    after, seconds = usage(), time.monotonic() - began
    return answer, {
        "own_cores": round((after.own_cpu_s - before.own_cpu_s) / seconds, 3),
        "others_cores": round(after.others_since(before, seconds), 3),
        "machine_busy_share": round(after.busy_share_since(before), 3),
        "seconds": round(seconds, 2),
    }
