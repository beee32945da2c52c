"""How a pump sleeps: until somebody calls it, until a descriptor that it watches has something to read, or in time.

A pump that looked every millisecond whether anything has come would let each row wait for half of one, and spend a
tenth of a core on a hundred quiet connections.
"""

import contextlib
import select
import selectors
import socket


class Doze:
    """The sleep of one thread. Anybody may call it; only the thread itself may watch and wait."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._selector = selectors.DefaultSelector()
        self._ear, self._mouth = socket.socketpair()
        for end in (self._ear, self._mouth):
            end.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)

    def call(self) -> None:
        """Wake the thread up, or keep it from falling asleep."""
        with contextlib.suppress(BlockingIOError):  # it has been called so often that it will surely wake
            self._mouth.send(b"!")

    def watch(self, descriptor: int) -> None:
        """Wake up, once, when this descriptor has something to read."""
        with contextlib.suppress(KeyError):  # it is watched already
            self._selector.register(descriptor, selectors.EVENT_READ)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more: it is about to be closed, and its number may come again. From any thread."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def wait(self, seconds: float) -> frozenset[int]:
        """Sleep, and return the descriptors that have something to read; they are watched no more."""
        # Around the selector, since by itself it counts in milliseconds: a paced source would be late by half of one.
        select.select([self._selector], [], [], seconds)
        ready = {key.fd for key, _ in self._selector.select(0)}
        if self._ear.fileno() in ready:
            self._ear.recv(4_096)
            ready.discard(self._ear.fileno())
        for descriptor in ready:
            self.forget(descriptor)
        return frozenset(ready)

    def close(self) -> None:
        """Let go of everything."""
        self._selector.close()
        self._ear.close()
        self._mouth.close()
