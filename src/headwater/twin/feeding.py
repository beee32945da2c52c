"""The threads of feeders: one for each, or one for all, a file at a time."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from headwater.twin.feed import Feeder

END_S: Final = 10.0  # a source may block; beyond this its thread is abandoned


class Feeding:
    """The threads in which sources are read."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self._halt = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def is_halted(self) -> bool:
        """Whether reading has been stopped."""
        return self._halt.is_set()

    def start(self, feeders: Sequence[Feeder], after_file: Callable[[], None] = lambda: None) -> None:
        """Read these sources in turn, in one thread; `after_file` is called after each new file."""
        thread = threading.Thread(target=self._feed, args=(feeders, after_file), name="feed", daemon=True)
        self._threads.append(thread)
        thread.start()

    def halt(self) -> None:
        self._halt.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(END_S)

    def _feed(self, feeders: Sequence[Feeder], after_file: Callable[[], None]) -> None:
        try:
            while not self._halt.is_set() and (running := [one for one in feeders if not one.has_ended]):
                rests_s = [self._turn(feeder, after_file) for feeder in running]
                if min(rests_s) > 0:
                    self._halt.wait(min(rests_s))
        except Exception as failure:  # a source may raise anything; the run raises it again
            self.failures.append(failure)

    def _turn(self, feeder: Feeder, after_file: Callable[[], None]) -> float:
        before = feeder.staged
        rest_s = feeder.turn()
        if feeder.staged > before:
            after_file()
        return rest_s
