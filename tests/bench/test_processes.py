"""What the benchmarks read of processes in `/proc`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import cpu_s, tree_cpu_s

BURN = "import time\nwhile time.process_time() < 0.5: pass"  # a little more than is asked for: /proc counts whole ticks

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="this system has no /proc")


def test_what_a_process_used_still_counts_when_it_has_ended() -> None:
    """Workers end with their node, and what they used would be missing from the load of a soak."""
    before, whole = cpu_s(os.getpid()), tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert cpu_s(os.getpid()) - before >= 0.4
    assert tree_cpu_s(os.getpid()) - whole >= 0.4
