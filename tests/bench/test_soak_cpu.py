"""What the soak counts of processes that come and go."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.soak_cpu import CpuWatch

BURN = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="this system has no /proc")


def test_what_a_process_used_still_counts_when_it_has_ended() -> None:
    """Workers end with their node, and nobody waits for them."""
    watch = CpuWatch(os.getpid())
    before = watch.look()
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as burning:
        assert burning.stdout is not None
        burning.stdout.readline()
        seen = watch.look()
    after = watch.look()
    assert seen.own_cpu_s - before.own_cpu_s >= 0.4, "whole ticks are counted"
    assert after.own_cpu_s >= seen.own_cpu_s
