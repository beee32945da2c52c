"""How streams and flows show themselves: one line, and a picture in notebooks; and what users are shown by `dir`."""

from types import ModuleType
from xml.etree import ElementTree

import pytest

import headwater as hw
from headwater import functions as F


def readings() -> hw.Stream:
    """Return a stream with a union on its way."""
    rows = hw.read.iterable([{"k": "a", "v": 1}], name="rows")
    return rows.union(rows, name="both").filter(hw.col("v") > 0)


def test_a_stream_and_a_sink_show_their_way_in_one_line() -> None:
    """From the source on, by names."""
    stream = readings()
    assert repr(stream) == "<Stream: rows → both (and 1 more) → filter>"
    assert repr(stream.key_by("k")) == "<KeyedStream: rows → both (and 1 more) → filter → key_by>"
    assert repr(stream.key_by("k").window(F.count_window(2))).endswith("key_by → window>")
    assert repr(stream.sink(hw.to.console())) == "<Sink: rows → both (and 1 more) → filter → console>"
    assert stream._repr_html_() == "<code>&lt;Stream: rows → both (and 1 more) → filter&gt;</code>"


def test_a_long_way_is_shortened() -> None:
    """A wall of text tells nobody anything."""
    stream = readings()
    for number in range(50):
        stream = stream.limit(9, name=f"limit-{number}")
    assert repr(stream).count("→") == 8
    assert len(repr(stream)) < 120


def test_a_flow_shows_its_ways_and_in_a_notebook_its_picture() -> None:
    """The picture is an image, so that its styles stay its own."""
    stream = readings()
    flow = hw.flow("means", stream.sink(hw.to.console()), stream.limit(1).sink(hw.to.nothing()))
    assert repr(flow) == (
        "<Flow 'means': rows → both (and 1 more) → filter → console, "
        "rows → both (and 1 more) → filter → limit → nothing>"
    )
    assert ElementTree.fromstring(flow._repr_svg_()).tag.endswith("svg")
    image = ElementTree.fromstring(flow._repr_html_())
    assert (image.tag, image.attrib["alt"]) == ("img", repr(flow))
    assert image.attrib["src"].startswith("data:image/svg+xml,%3Csvg")


@pytest.mark.parametrize("module", [hw, hw.read, hw.to, F], ids=lambda one: one.__name__)
def test_dir_lists_what_is_for_users_and_nothing_else(module: ModuleType) -> None:
    """And all of it is there."""
    listed = set(dir(module)) - {"__version__"}
    assert listed == set(module.__all__)
    assert not any(name.startswith("_") for name in listed)
    assert all(getattr(module, name) is not None for name in listed)


def test_the_cluster_is_listed() -> None:
    """Though what speaks to nodes is only imported when it is asked for."""
    assert "Cluster" in dir(hw)


@pytest.mark.parametrize("part", [readings(), readings().sink(hw.to.nothing()), hw.col("v")], ids=repr)
def test_what_python_asks_for_is_answered_as_python_expects(part: object) -> None:
    """A name that begins with an underscore is a protocol's, and one that is not there can be asked about."""
    assert not hasattr(part, "__array__")
    assert not hasattr(part, "nowhere")
