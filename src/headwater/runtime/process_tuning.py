"""What engines change in their process: shorter thread switches, less garbage collection, and memory given back.

Several engines may share a process, and come and go there (`headwater cluster`): what the first has set stays until the
last has stopped.

glibc gives threads allocation arenas of their own, up to eight per core, and keeps freed memory there. A new engine's
threads get other arenas than those that an old engine has left: forty nodes that joined and left took 10 MB that
nothing used. With two arenas it was none, and there is hardly any contention, since a thread that allocates in Python
holds the interpreter lock.
"""

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

SWITCH_S: Final = 0.0005  # a pump that computes must not keep the scheduler from the interpreter for Python's 5 ms
ARENAS_MAX: Final = 2  # one for the thread with the interpreter lock, one for those that have released it
GIVE_BACK_S: Final = 60.0  # between two attempts to give memory back, each of half a millisecond
_M_ARENA_MAX: Final = -8  # as in malloc.h


def limit_arenas(count: int) -> bool:
    """Limit the arenas of threads that start from here on; False if the allocator is not glibc's."""
    mallopt = _of_libc("mallopt")
    return mallopt is not None and mallopt(_M_ARENA_MAX, count) == 1


def give_back_memory() -> bool:
    """Return freed memory to the operating system; False if there was none, or it is not possible."""
    malloc_trim = _of_libc("malloc_trim")
    return malloc_trim is not None and malloc_trim(ctypes.c_size_t(0)) == 1


def _of_libc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)


class EngineProcess:
    """The settings of a process, and the engines that run in it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, give_back: Callable[[], object] = give_back_memory
    ) -> None:
        self._lock = threading.Lock()
        self._engines: set[object] = set()
        self._is_set_aside = False
        self._usual_switch_s = sys.getswitchinterval()
        self._clock, self._give_back = clock, give_back
        self._gives_back_at = clock() + GIVE_BACK_S

    def engine_starts(self, engine: object) -> None:
        """Prepare for an engine, before its threads begin."""
        with self._lock:
            if not self._engines:
                self._usual_switch_s = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_S)
                limit_arenas(ARENAS_MAX)
            self._engines.add(engine)

    def engine_started(self) -> None:
        """Freeze the objects there are: a garbage collection that walks them would delay the scheduler by 30 ms."""
        with self._lock:
            self._set_aside()

    def _set_aside(self) -> None:
        gc.collect()
        gc.freeze()
        self._is_set_aside = True

    def engine_stopped(self, engine: object) -> None:
        """Unfreeze an engine's objects, and restore the switch interval after the last engine.

        For the remaining engines all is frozen again at their next `look`: by then the stopped engine's objects have no
        references. An engine that never started has changed nothing.
        """
        with self._lock:
            if engine not in self._engines:
                return
            self._engines.remove(engine)
            gc.unfreeze()
            self._is_set_aside = False
            if not self._engines:
                sys.setswitchinterval(self._usual_switch_s)

    def look(self) -> None:
        """Give memory back from time to time; engines call this continuously."""
        with self._lock:
            if self._clock() < self._gives_back_at:
                return
            self._gives_back_at = self._clock() + GIVE_BACK_S
            if self._engines and not self._is_set_aside:
                self._set_aside()
        self._give_back()


this_process: Final = EngineProcess()
