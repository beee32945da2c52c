"""The picture of a graph is well-formed, complete, and its text fits its boxes."""

from typing import Final
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import headwater as hw
from headwater.dataflow.drawing.glyphs import CHAR, DETAIL_PX, NAME_PX
from headwater.dataflow.drawing.picture import draw
from headwater.dataflow.graph import Graph

SVG: Final = "{http://www.w3.org/2000/svg}"


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Change nothing."""
    return batch


def count(batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Remember nothing."""
    return batch


def linear() -> hw.Flow:
    """One chain."""
    stream = hw.read.iterable([1]).map(same, name="a").filter(same, name="b").select("value", name="c")
    return hw.flow("linear", stream.sink(hw.to.nothing()))


def branching() -> hw.Flow:
    """Split, union, keys over four instances, dead letters, a second source, and a very long name."""
    good, bad = hw.read.cities(name="readings").split(same, into=("good", "bad"), name="judge")
    mended = bad.map(same, name="mend", on_error="dead-letter")
    together = good.union(mended, hw.read.cities(name="more"))
    wide = good.map(same, name="a-name-that-is-much-longer-than-any-box-should-ever-become", parallelism=3)
    return hw.flow(
        "branching",
        together.key_by("city", "sensor").stateful(count, name="count", parallelism=4).sink(hw.to.nothing()),
        mended.errors.sink(hw.to.json("dead.jsonl"), name="dead-letters"),
        wide.sink(hw.to.csv("wide.csv"), name="wide"),
    )


def compiled(flow: hw.Flow) -> Graph:
    """Compile with chains."""
    return hw.compile_flow(flow)


@pytest.mark.parametrize("flow", [linear(), branching()], ids=lambda flow: flow.name)
def test_the_picture_is_well_formed_and_names_every_operator_that_runs(flow: hw.Flow) -> None:
    graph = compiled(flow)
    root = ElementTree.fromstring(draw(graph))
    told = {text for element in root.iter() for text in element.itertext()}
    for name in (*graph.sources, *(one for chain in graph.chains for one in chain.operators)):
        assert name in told
    assert not list(root.iter(f"{SVG}script"))


@pytest.mark.parametrize("flow", [linear(), branching()], ids=lambda flow: flow.name)
def test_no_text_leaves_the_picture_and_none_is_wider_than_its_box(flow: hw.Flow) -> None:
    root = ElementTree.fromstring(draw(compiled(flow)))
    body = next(root.iter(f"{SVG}g"))
    rects = [(float(r.get("x", 0)), float(r.get("y", 0)), float(r.get("width", 0)), float(r.get("height", 0)))
             for r in body.iter(f"{SVG}rect")]  # fmt: skip
    for text in body.iter(f"{SVG}text"):
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        px = NAME_PX if text.get("class") == "name" else DETAIL_PX
        shown = text.text or next(iter(text)).tail or ""
        width = len(shown) * px * CHAR
        assert x + width <= float(root.get("width", 0))
        around = [left + wide for left, top, wide, high in rects if left < x < left + wide and top < y < top + high]
        if text.get("class") in ("name", "muted") and around:
            assert x + width <= min(around) + 0.1, shown


def test_a_long_name_is_cut_and_told_in_full_under_the_pointer() -> None:
    root = ElementTree.fromstring(draw(compiled(branching())))
    whole = [title.text for title in root.iter(f"{SVG}title")]
    assert "a-name-that-is-much-longer-than-any-box-should-ever-become" in whole


def test_instances_keys_and_dead_letters_are_marked() -> None:
    drawn = draw(compiled(branching()))
    for mark in (">×4<", ">×3<", "key(city, sensor)", "good · balance", "errors · forward", 'class="route dead"'):
        assert mark in drawn, mark
    assert ".dead{stroke-dasharray" in drawn


def test_columns_with_signs_of_xml_are_escaped() -> None:
    schema = pa.schema([('a<b>&"c"', pa.int64())])
    keyed = hw.read.csv("x.csv", schema=schema).key_by('a<b>&"c"').stateful(count, name="count", parallelism=2)
    root = ElementTree.fromstring(draw(compiled(hw.flow("escaped", keyed.sink(hw.to.nothing())))))
    assert any(text.text == 'key(a<b>&"c")' for text in root.iter(f"{SVG}text"))


def test_the_picture_is_readable_by_day_and_by_night_and_fetches_nothing() -> None:
    drawn = draw(compiled(linear()))
    assert "@media(prefers-color-scheme:dark)" in drawn
    assert "url(http" not in drawn
    assert drawn.count("http") == 1, "the namespace only"


def test_the_same_graph_is_drawn_the_same() -> None:
    assert draw(compiled(branching())) == draw(compiled(branching()))
