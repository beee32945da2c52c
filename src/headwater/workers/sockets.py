"""How the sockets of all ports are set up."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from headwater.model.errors import EngineError

LOST_MS: Final = 10_000  # data unacknowledged for so long: the other machine is lost
_PORTS: Final = 1 << 16
_TRIES: Final = 100
_LISTENS: Final = "0A"  # a state of TCP, as Linux writes it in /proc/net/tcp
_NOT_SENT_LOW_WATER: Final = 25  # TCP_NOTSENT_LOWAT; Python names it from 3.12 on


def bound_socket(host: str, port: int, purpose: str) -> socket.socket:
    """Return a socket bound to a port, any if it is 0; nobody can connect before it listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with ExitStack() as undo:
            bound = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a node that restarts wants its port at once
            bound.bind((host, port))
            undo.pop_all()
    except OSError as failure:
        where = f"port {port} of {host}" if port else f"a port of {host}"
        why = why_not_bound(failure, port)
        raise EngineError(f"{where} cannot be opened for {purpose}: {why}") from failure
    return bound


def why_not_bound(failure: OSError, port: int) -> str:
    """Return why a port could not be bound and, if another process has it, which one."""
    why = failure.strerror or str(failure)
    if failure.errno != errno.EADDRINUSE:
        return why
    who = listener_of(port) or f"a process that is not shown to this user (`ss -ltnp sport = :{port}` as root names it)"
    return f"{why}, by {who}; stop it, or choose another port"


def listener_of(port: int) -> str:
    """Return which process listens on a port of this machine, as `pid 4711 (headwater)`, if this user can see it."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(Path("/proc/net", table), port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with suppress(OSError):  # it has ended, or is another user's
            if any(os.readlink(one) in inodes for one in (process / "fd").iterdir()):
                return f"pid {process.name} ({(process / 'comm').read_text().strip()})"
    return ""


def _listening(table: Path, port: int) -> Iterator[str]:
    """Yield the sockets that listen on a port, as the links of /proc/PID/fd name them."""
    with suppress(OSError):  # not Linux
        for line in table.read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield f"socket:[{inode}]"


def free_ports(host: str, count: int) -> int:
    """Return the first of `count` consecutive ports that are free at the moment."""
    for _ in range(_TRIES):
        with ExitStack() as probes:
            first = probes.enter_context(bound_socket(host, 0, "nodes")).getsockname()[1]
            with suppress(EngineError):
                for port in range(first + 1, min(first + count, _PORTS)):
                    probes.enter_context(bound_socket(host, port, "nodes"))
                if first + count <= _PORTS:
                    return int(first)
    raise EngineError(f"no {count} ports in a row are free on {host}; give the first with --port")


def notice_lost_machine(sock: Any) -> None:
    """Have the kernel close a connection whose other machine acknowledges nothing, not even heartbeats."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_MS)


def send_late(sock: Any, waiting_bytes: int) -> None:
    """Limit what the kernel buffers unsent, so that urgent data does not queue behind megabytes."""
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOW_WATER, waiting_bytes)
