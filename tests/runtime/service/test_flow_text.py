"""Flows are built from their text while other threads of the node go on with what they do."""

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headwater.client.flow_text import flow_texts
from headwater.loading.module_isolation import only_beside
from headwater.model.errors import FlowError

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
    (tmp_path / "beside_a_flow.py").touch()
    module = sys.modules["beside_a_flow"] = ModuleType("beside_a_flow")
    module.__file__ = "/elsewhere/beside_a_flow.py"
    for _ in range(200):
        with only_beside(tmp_path):
            assert "beside_a_flow" not in sys.modules
    assert sys.modules.pop("beside_a_flow") is module


FLOW = """
import headwater as hw
{imports}
flow = hw.flow("{name}", hw.read.iterable([]).sink(hw.to.nothing()))
"""


def write(path: Path, imports: str = "") -> Path:
    path.write_text(FLOW.format(imports=imports, name=path.stem[:20]))
    return path


def test_a_link_to_a_flow_travels_with_what_is_beside_the_file(tmp_path: Path) -> None:
    """As where the latest of several releases is linked to."""
    release = tmp_path / "release"
    release.mkdir()
    (release / "beside_a_link.py").write_text("LIMIT = 3\n")
    write(release / "linked.py", "import beside_a_link")
    (tmp_path / "current.py").symlink_to(release / "linked.py")
    [text] = flow_texts(str(tmp_path / "current.py"))
    assert (text.written, sorted(text.files)) == ("linked.py", ["beside_a_link.py", "linked.py"])


def test_a_file_that_is_not_utf_8_is_refused_with_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "latin.py")
    path.write_bytes(b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + path.read_bytes())
    with pytest.raises(FlowError, match=r"latin\.py is not UTF-8 text"):
        flow_texts(str(path))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = write(tmp_path / "marked.py")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    [text] = flow_texts(str(path))
    assert text.files["marked.py"].startswith("\nimport")


def test_what_lies_in_a_package_and_is_no_python_keeps_nobody_from_submitting(tmp_path: Path) -> None:
    package = tmp_path / "package_with_old"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "old.py").write_text('print "of another Python"\n')
    [text] = flow_texts(str(write(tmp_path / "packed.py", "import package_with_old")))
    assert "package_with_old/old.py" in text.files


def test_a_package_without_a_file_of_its_own_travels_too_and_is_forgotten(tmp_path: Path) -> None:
    package = tmp_path / "package_without_init"
    package.mkdir()
    (package / "limits.py").write_text("LIMIT = 3\n")
    path = write(tmp_path / "spacious.py", "from package_without_init import limits")
    [text] = flow_texts(str(path))
    assert sorted(text.files) == ["package_without_init/limits.py", "spacious.py"]
    assert not [name for name in sys.modules if name.startswith("package_without_init")]


def test_a_directory_that_another_package_goes_before_does_not_travel(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "notes.py").write_text("")
    [text] = flow_texts(str(write(tmp_path / "other.py", "import numpy")))
    assert sorted(text.files) == ["other.py"]


def test_an_environment_beside_the_flow_stays_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a project that has its own: numpy cannot be imported twice. The caller's script is there, too."""
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "imported_once.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'x')\n")
    monkeypatch.syspath_prepend(str(packages))
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    path = str(write(tmp_path / "twice.py", "import imported_once"))
    first, second = flow_texts(path), flow_texts(path)
    assert first == second
    assert [list(text.files) for text in first] == [["twice.py"]]
    assert sys.modules["__main__"] is script
    del sys.modules["imported_once"]


def test_what_the_caller_has_imported_from_below_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found elsewhere than beside the flow, it is not the flow's; imported again it would be another."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "of_the_caller.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    module = importlib.import_module("of_the_caller")
    flow_texts(str(write(tmp_path / "below.py")))
    assert sys.modules.pop("of_the_caller") is module


def test_an_empty_name_is_no_way_to_say_that_there_is_none(tmp_path: Path) -> None:
    """A script whose variable is not set would have another app run than it means."""
    with pytest.raises(FlowError, match="''"):
        flow_texts(str(write(tmp_path / "named.py")), called="")


def test_names_that_are_too_long_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"the flow name .* has 280 characters"):
        flow_texts(str(write(tmp_path / "short.py")), called="7" * 280)
    with pytest.raises(FlowError, match="the file's name has 223 characters; at most 200"):
        flow_texts(str(write(tmp_path / ("long" * 55 + ".py"))))


def test_each_file_is_built_with_the_modules_beside_it(tmp_path: Path) -> None:
    """Also when one process submits several, and one of them again after its module was changed."""
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside_both.py").write_text(f"NAME = '{name}'\n")
        (tmp_path / name / "flow.py").write_text(
            "import headwater as hw\nimport beside_both\n"
            "flow = hw.flow(beside_both.NAME, hw.read.iterable([]).sink(hw.to.nothing()))\n"
        )

    def name_of(directory: str) -> str:
        [text] = flow_texts(str(tmp_path / directory / "flow.py"))
        return text.name

    assert [name_of("north"), name_of("south"), name_of("north"), name_of("south")] == ["north", "south"] * 2
    (tmp_path / "south" / "beside_both.py").write_text("NAME = 'far-south'\n")
    assert name_of("south") == "far-south"


def test_the_callers_own_modules_stay_what_they_are(tmp_path: Path) -> None:
    """A script that submits flows may have modules of the same names."""
    own = sys.modules["beside_the_caller"] = ModuleType("beside_the_caller")
    own.__file__ = str(tmp_path / "elsewhere" / "beside_the_caller.py")
    (tmp_path / "beside_the_caller.py").write_text("NAME = 'of-the-flow'\n")
    [text] = flow_texts(str(write(tmp_path / "caller.py", "import beside_the_caller as b; assert b.NAME")))
    assert sorted(text.files) == ["beside_the_caller.py", "caller.py"]
    assert sys.modules.pop("beside_the_caller") is own
