"""How a pump sleeps: until it is called, a watched descriptor becomes readable, or a time has passed.

A pump that polled every millisecond would delay each row by half of one, and spend a tenth of a core on a hundred quiet
connections.
"""

import contextlib
import select
import selectors
import socket


class Doze:
    """The sleep of one thread. Any thread may call it; only the thread itself may watch and wait."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ear, self._mouth = socket.socketpair()
        for end in (self._ear, self._mouth):
            end.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)

    def call(self) -> None:
        """Wake the thread, or make its next wait return at once."""
        with contextlib.suppress(BlockingIOError):  # the buffer is full of calls, so it will wake
            self._mouth.send(b"!")

    def watch(self, descriptor: int) -> None:
        """Wake once when this descriptor becomes readable."""
        with contextlib.suppress(KeyError):  # it is watched already
            self._selector.register(descriptor, selectors.EVENT_READ)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor that is about to be closed, as its number may be reused. From any thread."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def wait(self, seconds: float) -> frozenset[int]:
        """Sleep, and return the readable descriptors, which are not watched any more."""
        # select around the selector, which by itself has a resolution of a millisecond: a paced source would be late by
        # half.
        select.select([self._selector], [], [], seconds)
        ready = {key.fd for key, _ in self._selector.select(0)}
        if self._ear.fileno() in ready:
            self._ear.recv(4_096)
            ready.discard(self._ear.fileno())
        for descriptor in ready:
            self.forget(descriptor)
        return frozenset(ready)

    def close(self) -> None:
        """Close the selector and the sockets."""
        self._selector.close()
        self._ear.close()
        self._mouth.close()
