"""Flows are built from their text while other threads of the node go on with what they do."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headwater.runtime.service.flow_text import _forget_module

NAMES = 2_000


@pytest.fixture
def importing() -> Iterator[None]:
    """A thread that imports modules and forgets them again, as others do all the time."""
    is_over, interval = threading.Event(), sys.getswitchinterval()

    def go_on() -> None:
        while not is_over.is_set():
            for number in range(NAMES):
                sys.modules[f"imported_meanwhile_{number}"] = ModuleType("meanwhile")
            for number in range(NAMES):
                del sys.modules[f"imported_meanwhile_{number}"]

    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=go_on)
    thread.start()
    yield
    is_over.set()
    thread.join()
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("importing")
def test_a_module_is_forgotten_while_another_thread_imports(tmp_path: Path) -> None:
    """A node that failed to do so never started what it had been asked to."""
    for _ in range(200):
        module = sys.modules["beside_a_flow"] = ModuleType("beside_a_flow")
        module.__file__ = str(tmp_path / "beside_a_flow.py")
        _forget_module("beside_a_flow")
        assert "beside_a_flow" not in sys.modules
