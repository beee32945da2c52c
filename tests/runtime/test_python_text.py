"""Python text is read as a tree from many threads at once, where `ast.parse` by itself would stumble."""

import ast
import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.loading.python_text import parsed

TEXT = Path(__file__).read_text(encoding="utf-8")


class LetsOthersRun:
    """Rubbish whose finaliser gives way to other threads, as one does that closes a file or a socket."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def busy_collector() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(10)
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("busy_collector")
def test_threads_that_read_at_once_do_not_disturb_each_other() -> None:
    raised: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(100):
                LetsOthersRun()
                parsed(TEXT, Path("flow.py"))
        except SystemError as failure:
            raised.append(failure)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised


def test_an_error_of_the_interpreter_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def disturbed(*_: object) -> ast.Module:
        nonlocal tries
        tries += 1
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(ast, "parse", disturbed)
    with pytest.raises(SystemError):
        parsed("", Path("flow.py"))
    assert tries == 5


def test_text_that_is_no_python_names_its_file() -> None:
    with pytest.raises(SyntaxError) as caught:
        parsed("def :", Path("flow.py"))
    assert caught.value.filename == "flow.py"
