"""Building a flow is writing down data: nothing runs, opens or connects, and mistakes are named at once."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import Flow, Input, Stream, flow, source
from headwater.model.errors import FlowError
from tests.dataflow.specs import Closed, Wall, readings, rows_of_any_kind


def begin(spec: Any) -> Stream:
    """Start a stream with whatever a user took for a source."""
    return source(spec)


def explode(batch: Any) -> Any:
    """Be called by nobody."""
    raise AssertionError("a user's function was called")


def test_building_and_compiling_runs_nothing() -> None:
    """Neither the source nor the sink is opened, and no function is called."""
    built = flow(
        "idle",
        readings().map(explode).filter(explode).key_by("sensor").stateful(explode, parallelism=2).sink(Wall()),
    )
    assert compile_flow(built).name == "idle"


def test_a_flow_cannot_be_changed() -> None:
    """Nor a stream; every method returns a new one."""
    stream = readings()
    assert stream.map(explode) is not stream
    built = flow("frozen", stream.sink(Wall()))
    for thing, name in ((built, "name"), (built.declarations[0], "name"), (stream, "port"), (stream.vertex, "name")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, name, "other")


def test_only_what_leads_to_a_sink_is_part_of_the_flow() -> None:
    """A stream that was begun and left is not."""
    stream = readings("in")
    stream.map(explode, name="left")
    assert names(flow("short", stream.sink(Wall(), name="out"))) == ["in", "out"]


def test_inputs_are_declared_before_those_that_read_them() -> None:
    """Each once, however many read it."""
    stream = readings("in").map(explode, name="shared")
    built = flow("two", stream.sink(Wall(), name="a"), stream.filter(explode, name="some").sink(Wall(), name="b"))
    assert names(built) == ["in", "shared", "a", "some", "b"]
    assert built.declarations[3].inputs == (Input("shared"),)


def test_what_has_no_name_is_called_by_its_kind_and_a_number() -> None:
    """Beside the names that users gave, also those given later."""
    stream = readings().map(explode).map(explode).map(explode, name="map-2").map(explode)
    assert names(flow("auto", stream.sink(Wall()))) == ["closed", "map", "map-3", "map-2", "map-4", "wall"]


def test_the_same_flow_gets_the_same_names() -> None:
    """So that an app finds its state again."""

    def build() -> Flow:
        left, right = readings().split(explode)
        return flow("same", left.union(right.map(explode)).map(explode).sink(Wall()), left.sink(Wall()))

    assert build().declarations[1].name == build().declarations[1].name
    assert names(build()) == names(build())


def names(built: Flow) -> list[str]:
    """Return the names of a flow's declarations."""
    return [declared.name for declared in built.declarations]


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda s: flow("a b", s.sink(Wall())), "'a b' cannot be a flow name: use letters"),
        (lambda s: flow("", s.sink(Wall())), "'' cannot be a flow name"),
        (lambda s: flow("x" * 101, s.sink(Wall())), "has 101 characters; at most 100"),
        (lambda s: flow("none"), "flow 'none' has no sink; end at least one stream with .sink"),
        (lambda s: flow("open", s), "flow 'open' was given <Stream: .*>; end every stream with .sink"),
        (lambda s: s.sink("file.csv"), "'file.csv' is not a sink; use one of headwater.to"),
        (lambda s: s.sink(Closed()), "Closed.* is not a sink"),
        (lambda s: s.sink(Wall), "sink was given the class Wall; write Wall"),
        (lambda s: begin("file.csv"), "'file.csv' is not a source; use one of headwater.read"),
        (lambda s: begin(Wall()), "Wall.* is not a source"),
        (lambda s: begin(Closed), "source was given the class Closed; write Closed"),
        (lambda s: s.map("lower"), "map takes a function; for an expression write with_column"),
        (lambda s: s.map(explode, form="json"), "form='json' is unknown"),
        (lambda s: s.filter(explode, on_error="ignore"), "on_error='ignore' is unknown; use 'stop' or 'dead-letter'"),
        (lambda s: s.select(), "select needs at least one column"),
        (lambda s: s.select("value", value="sensor"), "select makes two columns named 'value'"),
        (lambda s: s.union(), "union needs at least one other stream"),
        (lambda s: s.key_by(), "key_by needs at least one column"),
        (lambda s: s.split(explode, into=("one",)), "split needs at least two different branch names"),
        (lambda s: s.split(explode, into=("one", "one")), "split needs at least two different branch names"),
        (lambda s: s.split(explode, into=("one", "errors")), "other than 'errors'"),
    ],
)
def test_a_mistake_is_named_where_it_is_made(build: Any, sentence: str) -> None:
    """With what to do instead."""
    with pytest.raises(FlowError, match=sentence):
        build(readings())


def test_a_stream_of_any_kind_can_be_built_without_columns() -> None:
    """Only running tells."""
    stream: Stream = rows_of_any_kind().select("anything").key_by("anything")
    assert compile_flow(flow("loose", stream.sink(Wall()))).schemas == {"closed": None, "select": None, "key_by": None}
