"""How the sockets of all ports are set up."""

import socket
import sys
from contextlib import ExitStack, suppress
from typing import Any, Final

from headwater.model.errors import EngineError

LOST_MS: Final = 10_000  # what is sent and not acknowledged for so long was sent to a machine that is gone
_PORTS: Final = 1 << 16
_TRIES: Final = 100
_NOT_SENT_LOW_WATER: Final = 25  # TCP_NOTSENT_LOWAT; Python names it from 3.12 on


def bound_socket(host: str, port: int, purpose: str) -> socket.socket:
    """Return a socket bound to a port, any if it is 0; nobody can connect before it listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a node that restarts wants its port at once
        bound.bind((host, port))
    except OSError as failure:
        where = f"port {port} of {host}" if port else f"a port of {host}"
        raise EngineError(f"{where} cannot be opened for {purpose}: {failure.strerror or failure}") from failure
    return bound


def free_ports(host: str, count: int) -> int:
    """Return the first of so many ports in a row that nobody has at the moment."""
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
    """Have the kernel give up on a machine that acknowledges nothing, not even the heartbeat."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_MS)


def send_late(sock: Any, waiting_bytes: int) -> None:
    """Have the kernel take only so much that it cannot send yet: what is urgent must not queue behind megabytes."""
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOW_WATER, waiting_bytes)
