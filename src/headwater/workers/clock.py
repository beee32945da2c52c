"""The machine's clock; state machines get the time as an argument instead."""

import time


def now_us() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1_000
