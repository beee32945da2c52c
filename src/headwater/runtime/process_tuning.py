"""What engines ask of the process they run in: short turns for its threads, nothing walked in vain, memory given back.

Several engines may share a process, and come and go there (`headwater cluster`): what the first has set stays until the
last has stopped.

glibc gives threads arenas of their own to allocate from, up to eight for each core, and keeps there what was freed. An
engine has several threads, and one that comes finds other arenas than the one that left: forty nodes that joined and
left took 10 MB that nobody held. With two arenas it was none, and threads hardly ever meet there, since whoever
allocates in Python holds the interpreter.
"""

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

SWITCH_S: Final = 0.0005  # a pump that computes must not keep the scheduler from the interpreter for Python's 5 ms
ARENAS_MAX: Final = 2  # one for the interpreter, one for those that have let go of it
GIVE_BACK_S: Final = 60.0  # between two looks for memory to give back; one takes half a millisecond
_M_ARENA_MAX: Final = -8  # as in malloc.h


def limit_arenas(count: int) -> bool:
    """Let threads that begin from here on share so many arenas; False where memory is not allocated by glibc."""
    mallopt = _of_libc("mallopt")
    return mallopt is not None and mallopt(_M_ARENA_MAX, count) == 1


def give_back_memory() -> bool:
    """Give the operating system what was freed and is still kept; False if there was nothing, or it cannot be done."""
    malloc_trim = _of_libc("malloc_trim")
    return malloc_trim is not None and malloc_trim(ctypes.c_size_t(0)) == 1


def _of_libc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)


class EngineProcess:
    """A process, and the engines that run in it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, give_back: Callable[[], object] = give_back_memory
    ) -> None:
        """Begin without engines."""
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
        """Set aside what is there now: each garbage collection that walks it would hold up the scheduler for 30 ms."""
        with self._lock:
            self._set_aside()

    def _set_aside(self) -> None:
        gc.collect()
        gc.freeze()
        self._is_set_aside = True

    def engine_stopped(self, engine: object) -> None:
        """Let what an engine had be collected, and threads take their usual turns once there is none.

        For those that stay all is set aside again when they next look: by then nobody holds what this one had. One that
        never started has changed nothing.
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
        """Give memory back now and then; engines call this all the time."""
        with self._lock:
            if self._clock() < self._gives_back_at:
                return
            self._gives_back_at = self._clock() + GIVE_BACK_S
            if self._engines and not self._is_set_aside:
                self._set_aside()
        self._give_back()


this_process: Final = EngineProcess()
