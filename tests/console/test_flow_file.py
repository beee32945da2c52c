"""A user's file gives its flows, or one clear sentence."""

import importlib
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows
from headwater.model.errors import FlowError
from tests.console.flows import LINEAR, Write

TWO = LINEAR + '\nother = hw.flow("other", hw.read.iterable([1]).map(double).sink(hw.to.nothing()))\nalias = other\n'

OWN_APPS = """
import headwater as hw

class First(hw.App):
    name = "own.first"
    wire = "text"

    def made(self):
        return lambda first, count: {"line": ["a"] * count}

    def build(self, rows):
        return rows

class Second(First):
    name = "own.second"
"""


def test_all_flows_of_a_file_are_found_each_once(write: Write) -> None:
    assert [flow.name for flow in load_flows(str(write("two.py", TWO)))] == ["linear", "other"]


def test_a_name_behind_a_colon_picks_one(write: Write) -> None:
    assert [flow.name for flow in load_flows(f"{write('two.py', TWO)}:other")] == ["other"]


def test_a_flow_is_also_picked_by_the_name_under_which_it_runs(write: Write) -> None:
    """`headwater apps` lists it under that one, and errors say it: whoever types it must not be told it is unknown."""
    path = write("named.py", LINEAR.replace('"linear"', '"rain-gauges.north"'))
    assert [flow.name for flow in load_flows(f"{path}:rain-gauges.north")] == ["rain-gauges.north"]


def test_a_variable_goes_before_another_flows_name(write: Write) -> None:
    crossed = 'import headwater as hw\na, b = (hw.flow(n, hw.read.iterable([1]).sink(hw.to.nothing())) for n in "ba")\n'
    assert [flow.name for flow in load_flows(f"{write('crossed.py', crossed)}:a")] == ["b"]


def test_an_application_of_a_file_is_picked_by_its_class_or_its_name_and_an_unknown_one_is_told_those_there(
    write: Write,
) -> None:
    path = write("own_apps.py", OWN_APPS)
    assert [flow.name for flow in load_flows(f"{path}:First")] == ["own.first"]
    assert [flow.name for flow in load_flows(f"{path}:own.second")] == ["own.second"]
    with pytest.raises(FlowError, match=r"has no flow named 'Frist'; it has: First, Second"):
        load_flows(f"{path}:Frist", Ends(rate=5))


def test_an_unknown_name_is_answered_with_the_known_ones(write: Write) -> None:
    with pytest.raises(FlowError, match=r"has no flow named 'third'; it has: flow, other, alias"):
        load_flows(f"{write('two.py', TWO)}:third")


def test_a_flow_may_import_what_lies_beside_it(write: Write) -> None:
    write("beside_the_flow.py", "LIMIT = 3\n")
    path = write("imports.py", "from beside_the_flow import LIMIT\n" + LINEAR)
    assert load_flows(str(path))[0].name == "linear"
    assert str(path.parent) in sys.path


def test_a_file_named_like_a_module_gets_in_nobodys_way(write: Write) -> None:
    known = sys.modules["json"]
    path = write("json.py", LINEAR)
    assert load_flows(str(path))[0].name == "linear"
    assert sys.modules["json"] is known
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:  # which inherits the path
        assert pool.submit(file_of, "json").result() == known.__file__
    assert str(path.parent) in sys.path


def file_of(module: str) -> str | None:
    """Import a module in a fresh process and return where it was found."""
    return importlib.import_module(module).__file__


def test_what_lies_beside_a_flow_comes_before_what_is_installed(write: Write) -> None:
    write("this.py", "LIMIT = 3\n")
    assert load_flows(str(write("shadows.py", "from this import LIMIT\n" + LINEAR)))[0].name == "linear"


def test_a_file_without_a_flow_is_told_how_to_have_one(write: Write) -> None:
    with pytest.raises(FlowError, match=r"has no flow; .* flow = hw\.flow"):
        load_flows(str(write("none.py", "x = 1\n")))


def test_a_file_that_raises_is_named_with_the_line(write: Write) -> None:
    path = write("raises.py", "x = 1\n\ny = x / 0\n")
    with pytest.raises(FlowError) as caught:
        load_flows(str(path))
    assert str(caught.value) == f"{path}:3: ZeroDivisionError: division by zero (in: y = x / 0)"


def test_a_syntax_error_is_named_with_the_line(write: Write) -> None:
    path = write("syntax.py", "x = 1\ndef f(:\n")
    with pytest.raises(FlowError, match=r"syntax\.py:2: SyntaxError"):
        load_flows(str(path))


def test_a_flow_that_is_built_wrong_is_named_with_the_line_and_the_reason(write: Write) -> None:
    path = write("wrong.py", "import headwater as hw\n\nhw.read.iterable([1]).select()\n")
    with pytest.raises(FlowError, match=r"wrong\.py:3: select needs at least one column"):
        load_flows(str(path))


def test_a_file_that_wants_to_end_python_only_fails_to_load(write: Write) -> None:
    with pytest.raises(FlowError, match=r"ends\.py:2: SystemExit: 3"):
        load_flows(str(write("ends.py", "import sys\nsys.exit(3)\n")))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.py", "there is no file"),
        (".", "is a directory"),
        ("storm.no_such_app", "is neither a file nor an application; `headwater apps` lists"),
        ("a" * 300, "cannot be read: File name too long"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(FlowError, match=sentence):
        load_flows(str(tmp_path / name))


def test_an_error_shows_the_line_without_the_password_in_it(write: Write) -> None:
    """On a node it goes to the log, and to everybody who may look at the app."""
    path = write("broken.py", "import headwater as hw\nrows = hw.read.mqtt('mqtt://ann:s3cret@broker/t', colour=7)\n")
    with pytest.raises(FlowError) as failure:
        load_flows(str(path))
    assert "mqtt://ann:***@broker/t', colour=7" in str(failure.value)
    assert "s3cret" not in str(failure.value)
