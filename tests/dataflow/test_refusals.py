"""What cannot run is refused before a row flows, with a sentence that names the operator and the cause."""

import re
from typing import Any

import pyarrow as pa
import pytest

from headwater import functions as F
from headwater.dataflow.compile import OPERATORS_MAX, compile_flow
from headwater.dataflow.stream import Declaration, Flow, Input, flow, source
from headwater.model.errors import FlowError, UnknownColumn
from headwater.operators.base import OnError
from headwater.operators.functions import Form
from headwater.operators.stateless import Map, Split, Union
from tests.dataflow.specs import Closed, Wall, readings, rows_of_any_kind

MAP = Map(function=len, form=Form.ARROW)
LENIENT = Map(function=len, form=Form.ARROW, on_error=OnError.DEAD_LETTER)
SPLIT = Split(function=len, form=Form.ARROW, branches=("yes", "no"))


def declared(name: str, part: Any, *inputs: str | tuple[str, str], **more: Any) -> Declaration:
    """Declare a vertex by hand: inputs are names, or names with a port."""
    given = tuple(Input(one) if isinstance(one, str) else Input(*one) for one in inputs)
    return Declaration(name, part, given, **more)


def refusal(*declarations: Declaration, name: str = "wrong") -> str:
    """Return the sentence with which a flow is refused."""
    with pytest.raises(FlowError) as refused:
        compile_flow(Flow(name, declarations))
    return str(refused.value)


IN, OUT = declared("in", Closed()), declared("out", Wall(), "a")


def test_a_cycle_is_shown_as_it_runs() -> None:
    """Only its own operators, in the order in which rows would run round."""
    sentence = refusal(
        IN,
        declared("a", Union(), "in", "c"),
        declared("b", MAP, "a"),
        declared("c", MAP, "b"),
        OUT,
    )
    assert sentence.startswith("flow 'wrong' has a cycle: ")
    shown = sentence.split("cycle: ")[1].split(";")[0].split(" → ")
    assert shown[0] == shown[-1]
    assert "".join(shown) in ("abca", "bcab", "cabc")


def test_an_operator_that_reads_itself_is_a_cycle() -> None:
    """The shortest."""
    assert "cycle: a → a" in refusal(declared("a", MAP, "a"), OUT)


def test_an_input_that_does_not_exist_is_named() -> None:
    """With those that do."""
    assert refusal(IN, declared("a", MAP, "gone"), OUT) == (
        "operator 'a' reads from 'gone', which the flow does not have; it has: a, in, out"
    )


def test_a_name_used_twice_is_named() -> None:
    """The user gives names; the flow cannot guess which is meant."""
    assert refusal(IN, declared("a", MAP, "in"), declared("a", MAP, "in"), OUT) == (
        "flow 'wrong' has two operators named 'a'; give one another name="
    )


@pytest.mark.parametrize("name", ["", "with space", "-dash", "sl/ash", "née", "x" * 101])
def test_a_name_that_cannot_stand_in_a_file_name_is_refused(name: str) -> None:
    """For operators and for flows."""
    assert "operator name" in refusal(declared(name, Closed()))
    assert "flow name" in refusal(IN, name=name)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (declared("a", Closed(), "in"), "source 'a' has an input; a source starts a stream"),
        (declared("a", MAP), "map 'a' has 0 inputs; it needs exactly one"),
        (declared("a", MAP, "in", "in"), "map 'a' has 2 inputs; it needs exactly one"),
        (declared("a", Union(), "in"), "union 'a' has 1 input; it joins two or more streams"),
        (declared("a", Wall()), "wall 'a' has 0 inputs; it needs exactly one"),
        (declared("a", "text", "in"), "'a' is a str, which is neither source, operator nor sink"),
        (declared("a", MAP, "in", parallelism=0), "operator 'a' has parallelism 0; it must be a whole number from 1"),
        (declared("a", MAP, "in", parallelism=1025), "operator 'a' has parallelism 1025"),
        (declared("a", MAP, "in", parallelism=1.5), "operator 'a' has parallelism 1.5"),
    ],
)
def test_a_vertex_with_the_wrong_inputs_or_parallelism_is_named(wrong: Declaration, sentence: str) -> None:
    """With what it needs."""
    assert refusal(IN, wrong).startswith(sentence)


@pytest.mark.parametrize(
    ("before", "port", "sentence"),
    [
        (declared("a", MAP, "in"), "side", "operator 'b' reads port 'side' of 'a', which has: out"),
        (declared("a", SPLIT, "in"), "out", "operator 'b' reads port 'out' of 'a', which has: yes, no"),
        (declared("a", Closed()), "side", "operator 'b' reads port 'side' of source 'a'; it has only 'out'"),
        (declared("a", Closed()), "errors", "operator 'b' reads port 'errors' of source 'a'; it has only 'out'"),
        (declared("a", MAP, "in"), "errors", "operator 'b' reads the errors of 'a', which stops at an error instead"),
        (declared("a", Wall(), "in"), "out", "operator 'b' reads from sink 'a'; nothing comes out of a sink"),
    ],
)
def test_a_port_that_is_not_there_is_named(before: Declaration, port: str, sentence: str) -> None:
    """With those that are."""
    assert refusal(IN, before, declared("b", MAP, ("a", port))).startswith(sentence)


def test_errors_of_a_lenient_operator_can_be_read() -> None:
    """They are a stream like any other, with their own columns."""
    graph = compile_flow(
        Flow(
            "right",
            (IN, declared("a", LENIENT, "in"), declared("b", MAP, ("a", "errors")), declared("out", Wall(), "b")),
        )
    )
    assert [(route.source, route.port, route.target) for route in graph.routes][1] == ("a", "errors", "b")


@pytest.mark.parametrize(
    ("build", "operator", "column"),
    [
        (lambda s: s.select("nope", name="pick"), "pick", "nope"),
        (lambda s: s.key_by("nope", name="keyed").map(len), "keyed", "nope"),
        (lambda s: s.filter(len).key_by("sensor").stateful(len).select("x").select("y", name="deep"), None, None),
        (lambda s: s.select("sensor").select("value", name="late"), "late", "value"),
        (lambda s: s.select(v="value").select("value", name="renamed"), "renamed", "value"),
        (lambda s: s.map(len, on_error="dead-letter").errors.select("value", name="letters"), "letters", "value"),
        (lambda s: s.split(len)[1].select("nope", name="branch"), "branch", "nope"),
        (lambda s: s.map(len, schema=pa.schema([("a", pa.int8())])).select("value", name="made"), "made", "value"),
        (lambda s: s.union(s).select("nope", name="both"), "both", "nope"),
    ],
)
def test_a_column_that_cannot_be_there_is_found_before_anything_runs(build: Any, operator: Any, column: Any) -> None:
    """As far as columns are known; what a function makes without a schema, only running can tell."""
    if operator is None:
        flow("columns", build(readings()).sink(Wall()))
        return
    with pytest.raises(UnknownColumn) as refused:
        flow("columns", build(readings()).sink(Wall()))
    assert (refused.value.operator, refused.value.column) == (operator, column)
    assert str(refused.value).startswith(f"operator {operator!r} needs column {column!r}, but its input has only: ")


def test_a_column_that_cannot_be_a_key_is_found_before_anything_runs() -> None:
    """A list is no key."""
    stream = source(Closed(pa.schema([("tags", pa.list_(pa.string()))]))).key_by("tags", name="by-tags")
    with pytest.raises(FlowError, match="operator 'by-tags' spreads rows by column 'tags', a list<"):
        compile_flow(flow("keys", stream.sink(Wall())))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ([("sensor", pa.string())], "joins 'one' and 'two', but only one of them has column 'value'"),
        (
            [("sensor", pa.string()), ("value", pa.float64())],
            "union 'both': column 'value' is bigint in 'one' but double in 'two'",
        ),
    ],
)
def test_streams_that_do_not_fit_together_are_not_joined(other: Any, sentence: str) -> None:
    """Names both, the column and the types."""
    joined = readings("one").union(source(Closed(pa.schema(other)), name="two"), name="both")
    with pytest.raises(FlowError, match=sentence):
        compile_flow(flow("unions", joined.sink(Wall())))


def test_streams_with_the_same_columns_in_another_order_are_joined() -> None:
    """Columns go by name."""
    other = source(Closed(pa.schema([("value", pa.int64()), ("sensor", pa.string())])))
    assert compile_flow(flow("unions", readings().union(other).sink(Wall()))).sinks


def test_a_flow_made_by_a_runaway_loop_is_refused() -> None:
    """There is a bound to everything."""
    stream = readings()
    for _ in range(OPERATORS_MAX):
        stream = stream.map(len)
    with pytest.raises(FlowError, match="at most 1000 are allowed"):
        compile_flow(flow("endless", stream.sink(Wall())))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda rows: rows.window("5 seconds"), "window needs a window, such as F.window"),
        (lambda rows: rows.window(F.window("t", "1 s"), early_rows="x"), "early_rows='x' must be a whole number"),
        (lambda rows: rows.key_by("k").top_k("2", "v"), "k='2' must be a whole number"),
        (lambda rows: rows.join({}, "k", window=F.window("t", "1 s")), "join needs another stream, not {}"),
        (lambda rows: rows.join(rows, "k"), "a join needs either window"),
        (lambda rows: rows.join(rows, "k", window=F.session_window("t", "1 s")), "tumbling or sliding windows"),
        (lambda rows: rows.join(rows, [("a", "b", "c")], window=F.window("t", "1 s")), "pairs of names"),
        (lambda rows: rows.join(rows, "k", between=("5 s",), event_time="t"), "must be two durations"),
        (lambda rows: rows.join(rows, "k", between=("5 s", "1 s"), event_time="t"), "is empty"),
        (lambda rows: rows.enrich({"k": 1}, "k"), "enrich needs a table, such as hw.table"),
        (lambda rows: rows.key_by("k").process(3, "k string"), "process needs a StatefulProcessor, not 3"),
        (lambda rows: rows.key_by("k").reduce(3), "needs a function, not 3"),
        (lambda rows: rows.dedup("k", within="5 s"), "dedup needs event_time and within together"),
        (lambda rows: rows.key_by("k").window(F.window("t", "1 s")).agg(), "agg needs aggregates"),
        (lambda rows: rows.sql(" "), "sql needs a query"),
        (lambda rows: rows.model(b"onnx", ["k"], decode=len), "decode= is for the models that updates bring"),
        (lambda rows: rows.map(len).late, "map has no port 'late'"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(build: Any, sentence: str) -> None:
    """With the word the user wrote."""
    with pytest.raises(FlowError, match=re.escape(sentence)):
        build(rows_of_any_kind())


def test_an_outer_join_must_know_the_columns_that_may_be_missing() -> None:
    """Else its rows would have other columns until the other side has been seen."""
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    known = source(Closed(schema), name="known").with_watermark("t", "1 s")
    unknown = rows_of_any_kind("unknown").with_watermark("t", "1 s")
    window = F.window("t", "5 s")
    compile_flow(flow("fits", known.join(unknown, "k", window=window).sink(Wall())))
    compile_flow(flow("fits", unknown.join(known, "k", window=window, how="left").sink(Wall())))
    with pytest.raises(FlowError, match="the columns of its second input must be known beforehand"):
        compile_flow(flow("left", known.join(unknown, "k", window=window, how="left").sink(Wall())))
