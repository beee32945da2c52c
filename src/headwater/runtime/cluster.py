"""A standalone Spark cluster as the place of a node's workers, as far as it can be seen without starting Spark.

Spark itself tries a master that does not answer for a minute, and says so in pages of log.
"""

import socket
from dataclasses import dataclass
from typing import Final

from headwater.model.errors import ConfigError, EngineError
from headwater.runtime.address import host_and_port

REACH_S: Final = 5.0  # to connect; for each master that is named


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """On whose executors the tasks run, instead of on a Spark of our own."""

    master: str
    executor_mb: int
    slots_enough: int  # to begin with; a cluster with fewer has them all used
    slots_max: int | None  # more are not asked for: others may want to use the cluster; None: all there are


def masters_of(url: str) -> list[tuple[str, int]]:
    """Return host and port of each master in a URL; a cluster that is made to last names several."""
    scheme, _, places = url.partition("://")
    found = [one for place in places.split(",") if (one := host_and_port(place)) is not None]
    if scheme != "spark" or len(found) < len(places.split(",")):
        raise ConfigError(f"{url!r} is not the master of a standalone Spark cluster; use spark://host:port")
    return found


def reach_master(url: str) -> str:
    """Return the address of this machine as the cluster sees it; raises EngineError if no master can be reached."""
    reasons = []
    for host, port in masters_of(url):
        try:
            with socket.create_connection((host, port), timeout=REACH_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as failure:
            reasons.append(failure.strerror or str(failure))
    raise EngineError(
        f"no Spark master can be reached at {url} ({'; '.join(dict.fromkeys(reasons))}); "
        "start it, or give the URL that its log names"
    )
