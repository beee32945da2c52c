"""What engines ask of the process they share."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Final

import pytest

from headwater.runtime.process_tuning import GIVE_BACK_S, SWITCH_S, EngineProcess, give_back_memory, limit_arenas

USUAL_S: Final = 0.004


@pytest.fixture(autouse=True)
def usual_switches() -> Iterator[None]:
    """Let threads take turns of a length that nobody else sets, and as they did before afterwards."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    gc.unfreeze()
    sys.setswitchinterval(before)


def test_threads_take_short_turns_until_the_last_engine_has_stopped() -> None:
    """One that leaves must not make those slow that stay, in whatever order they go."""
    process = EngineProcess()
    for engine in ("first", "second"):
        process.engine_starts(engine)
    process.engine_stopped("first")
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    process.engine_starts("third")
    process.engine_stopped("second")
    process.engine_stopped("third")
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)


def test_an_engine_that_never_started_changes_nothing_when_it_is_stopped() -> None:
    """An engine whose start failed is stopped, too."""
    process = EngineProcess()
    process.engine_starts("runs")
    process.engine_stopped("never started")
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    process.engine_stopped("runs")
    process.engine_stopped("runs")
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)


def test_what_is_there_when_an_engine_has_started_is_not_walked_until_one_stops() -> None:
    """What an engine had must not stay for ever, though it was set aside; for those that stay it is as before."""
    now_s = 0.0
    process = EngineProcess(clock=lambda: now_s, give_back=lambda: None)
    for engine in ("one", "other"):
        process.engine_starts(engine)
        process.engine_started()
    assert gc.get_freeze_count() > 0
    had: _InCircle | None = _InCircle()
    found = weakref.ref(had)
    process.engine_started()
    had = None
    gc.collect()
    assert found() is not None, "set aside, so nobody looks for it"
    process.engine_stopped("one")
    now_s = GIVE_BACK_S
    process.look()
    assert found() is None
    assert gc.get_freeze_count() > 0
    process.engine_stopped("other")
    now_s = 2 * GIVE_BACK_S
    process.look()
    assert gc.get_freeze_count() == 0


class _InCircle:
    """Something that only the garbage collection finds."""

    def __init__(self) -> None:
        self.itself = self


def test_memory_is_given_back_once_a_minute_however_many_engines_look() -> None:
    """Each engine looks fifty times a second."""
    given: list[float] = []
    now_s = 0.0
    process = EngineProcess(clock=lambda: now_s, give_back=lambda: given.append(now_s))
    for step in range(5):
        now_s = step * GIVE_BACK_S / 2
        process.look()
        process.look()
    assert given == [GIVE_BACK_S, 2 * GIVE_BACK_S]


# Threads that all allocate at once, one after the other holding what it has until all have begun, then end. Prints how
# many heaps malloc has: the first is the program's, every further arena begins with one of 64 MB.
HEAPS: Final = """
import ctypes, sys, threading
from headwater.runtime.process_tuning import limit_arenas
if sys.argv[1] == "limited":
    assert limit_arenas(2)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
all_hold = threading.Barrier(12)
def hold():
    libc.malloc(ctypes.c_size_t(5_000))
    all_hold.wait()
threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fclose(ctypes.c_void_p(out))
"""


@pytest.mark.skipif(not limit_arenas(2), reason="memory is not allocated by glibc here")
def test_threads_that_come_and_go_share_two_arenas() -> None:
    """Without the limit each has one of its own, which keeps what was freed there."""

    def heaps(how: str) -> int:
        told = subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, text=True, check=True).stdout
        return told.count("<heap nr=")

    assert heaps("limited") == 2
    assert heaps("as usual") > 2


@pytest.mark.skipif(not limit_arenas(2), reason="memory is not allocated by glibc here")
def test_memory_can_be_given_back() -> None:
    """Twenty megabytes of small pieces between which something stays: what is freed there only goes when asked."""
    pieces = [bytearray(2_000) for _ in range(10_000)]
    del pieces[1::50], pieces[::2]
    assert give_back_memory()
