"""Something that is done every few seconds, from a thread of its own, for as long as a block lasts."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Regularly(ABC):
    """Calls `look` again and again; `with` begins and ends it."""

    def __init__(self, name: str, every_s: float) -> None:
        """Begin with nothing done."""
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        """Stop looking."""
        self._ended.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._ended.wait(self._every_s):
            self.look()

    @abstractmethod
    def look(self) -> object:
        """Do what is to be done."""
