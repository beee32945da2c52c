"""Where a worker finds its node: the store and a socket on the node's own machine, a port of it elsewhere.

A worker is on the node's machine if the kernel has the same boot id and the same pid namespace (LMDB identifies readers
by pid), and it may use the store and the socket.
"""

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES: Final = Path("/proc/self/ns/pid")
ADDRESS_FORM: Final = "write it like 10.0.0.1:7100 or gw1.example.org:7100 (1 to 63 characters between dots)"
_HOST_AND_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:,/\[\]]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Door:
    """The node's port for workers elsewhere, and the credentials for it."""

    host: str
    port: int
    certificate: str = field(repr=False)
    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """All that a worker needs to find its node and its store."""

    machine: str
    socket: str
    store: str
    disk_bytes: int
    power_safe: bool
    door: Door | None = None
    door_only: bool = False  # workers on the node's own machine use the port too

    def is_here(self) -> bool:
        """Whether this process can use the store itself."""
        return (
            not self.door_only
            and self.machine == this_machine()
            and os.access(self.store, os.R_OK | os.W_OK | os.X_OK)
            and os.access(self.socket, os.R_OK | os.W_OK)
        )


def this_machine() -> str:
    """Return a name for this boot of the kernel and this pid namespace."""
    try:
        return f"{_BOOT.read_text().strip()} {_PROCESSES.readlink()}"
    except OSError:  # not Linux
        return socket.gethostname()


def host_and_port(written: str) -> tuple[str, int] | None:
    """Parse `host:port` or `[IPv6 address]:port`; None if it is neither, or the host name is not possible."""
    found = _HOST_AND_PORT.fullmatch(written)
    if found is None or int(found[3]) > 65_535 or not _may_be_a_host(found[1] or found[2]):
        return None
    return found[1] or found[2], int(found[3])


def _may_be_a_host(name: str) -> bool:
    """Whether a name has parts of 1 to 63 characters each; sockets raise no OSError for others, but UnicodeError."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def address_of(host: str, port: int) -> str:
    """Return host and port as one text, as `host_and_port` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
