"""A standalone Spark cluster for a node's workers, checked before Spark is started.

Spark itself retries a master that does not answer for a minute, and logs pages about it.

A cluster that authenticates has one secret for its master, its workers and all its applications. The environment names
the file that holds it: a secret on a command line could be read by every user of the machine.
"""

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.model.errors import ConfigError, EngineError
from headwater.spark.address import host_and_port

log = logging.getLogger(__name__)

REACH_S: Final = 5.0  # to connect to one master
SECRET_FILE: Final = "HEADWATER_SPARK_SECRET_FILE"
SECRET_BYTES_MAX: Final = 4_096  # a secret is a line; a longer file is another one, named by mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneCluster:
    """The cluster on whose executors the tasks run."""

    master: str
    executor_mb: int
    slots_enough: int  # to begin with; a cluster with fewer has them all used
    slots_max: int | None  # leaves the rest of the cluster to others; None: no limit


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


def cluster_secret(environment: Mapping[str, str]) -> str | None:
    """Return the cluster's `spark.authenticate.secret` from the file that the environment names, or None."""
    named = environment.get(SECRET_FILE)
    if not named:
        return None
    try:
        with Path(named).open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                log.warning("%s can be read by others of this machine; chmod 600 it", named)
            secret = file.read(SECRET_BYTES_MAX + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(
            f"the secret of the Spark cluster cannot be read ({SECRET_FILE}={named}): {failure}"
        ) from failure
    if not secret or len(secret) > SECRET_BYTES_MAX or len(secret.split()) > 1:
        raise ConfigError(
            f"{named}, which {SECRET_FILE} names, has to hold the cluster's spark.authenticate.secret and nothing else"
        )
    return secret
