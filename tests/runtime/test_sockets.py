"""Sockets that cannot be set up are closed, however long somebody keeps the error."""

import os
import socket

import pytest

from headwater.model.errors import EngineError
from headwater.workers.sockets import bound_socket


def own_sockets() -> int:
    """Return how many sockets this process has."""
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(link) and os.readlink(link).startswith("socket:") for link in links)


def test_a_socket_that_cannot_be_bound_is_closed() -> None:
    """Those who look for free ports meet many that are taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, before = taken.getsockname()[1], own_sockets()
        errors = []
        for _ in range(3):
            with pytest.raises(EngineError, match=f"port {port} of 127.0.0.1 cannot be opened for tests") as told:
                bound_socket("127.0.0.1", port, "tests")
            errors.append(told)
        assert (len(errors), own_sockets()) == (3, before)
        with bound_socket("127.0.0.1", 0, "tests"):
            assert own_sockets() == before + 1
