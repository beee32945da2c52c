"""The machine's clock, for all that runs outside the pure machines."""

import time


def now_us() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1_000
