"""What another version of a flow goes on with, and what is refused: by name, and with a reason."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

import headwater as hw
from headwater import functions as F
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.manifest import Manifest, manifest_of
from headwater.dataflow.stream import Stream
from headwater.dataflow.succession import Succession, UpgradeRefused, succession
from headwater.operators.base import Operator

ROWS = pa.schema([("at", pa.timestamp("us", "UTC")), ("sensor", pa.string()), ("room", pa.string()), ("v", pa.int64())])


def running_sum(row: hw.Row, total: int | None) -> tuple[hw.Row, int]:
    """The sum so far."""
    return {"sensor": row["sensor"], "sum": (total or 0) + row["v"]}, (total or 0) + row["v"]


def rows(name: str = "rows", schema: pa.Schema = ROWS) -> Stream:
    """A source of known columns."""
    return hw.read.generator(lambda first, count: [], schema=schema, name=name)


def sums(readings: Stream, name: str | None = "sums", key: str = "sensor", **placing: Any) -> Stream:
    """The operator whose state is at stake."""
    return readings.key_by(key).stateful(running_sum, name=name, **placing)


def of(*streams: Stream, sink: str = "out") -> Manifest:
    """The manifest of a flow."""
    sinks = [one.sink(hw.to.nothing(), name=f"{sink}{number or ''}") for number, one in enumerate(streams)]
    return manifest_of(compile_flow(hw.flow("f", *sinks)))


def after(before: Manifest, now: Manifest, *given_up: str) -> Succession:
    """The succession of one by the other."""
    return succession("f", before, now, given_up)


def refusal(before: Manifest, now: Manifest, *given_up: str) -> str:
    """Why there is none."""
    with pytest.raises(UpgradeRefused) as refused:
        after(before, now, *given_up)
    return str(refused.value)


def test_what_has_the_same_name_and_form_goes_on_whatever_is_put_between() -> None:
    """A filter and a column more: sources, sums and sink stand where they stood, under other numbers."""
    before = of(sums(rows()))
    now = of(sums(rows().filter(hw.col("v") > 0).map(lambda batch: batch)))
    found = after(before, now)
    assert found.kept == ("rows", "sums", "out")
    assert found.begun == found.given_up == ()
    assert {kept.name: (old, new) for kept, old, new in found.numbers}["sums"] == (2, 4)


def test_what_is_new_begins_with_nothing() -> None:
    before = of(sums(rows()))
    now = of(sums(rows()), sums(rows("others"), name="more"), sink="out")
    assert after(before, now).begun == ("others", "more", "out1")


def test_another_key_is_refused() -> None:
    """The state of a sensor is not that of a room."""
    told = refusal(of(sums(rows())), of(sums(rows(), key="room")))
    assert "'sums' has its state by key (sensor), and would look for it by key (room)" in told
    assert "--discard sums" in told


def test_a_key_of_another_type_is_refused_where_types_are_known() -> None:
    """The number 7 and the text "7" are two keys."""
    other = pa.schema([("sensor", pa.int64()), ("v", pa.int64())])
    assert "as string, and would look for it as int64" in refusal(of(sums(rows())), of(sums(rows(schema=other))))
    assert after(of(sums(rows())), of(sums(rows().map(lambda batch: batch)))).kept


def test_another_number_of_instances_is_refused() -> None:
    assert "divided among 1, and would run 2 times" in refusal(of(sums(rows())), of(sums(rows(), parallelism=2)))


def test_what_is_gone_or_renamed_is_refused_unless_it_is_given_up() -> None:
    before, now = of(sums(rows())), of(sums(rows(), name="totals"))
    assert "stateful 'sums' is not there any more" in refusal(before, now)
    found = after(before, now, "sums")
    assert (found.kept, found.begun, found.given_up) == (("rows", "out"), ("totals",), ("sums",))


def test_a_source_or_sink_under_another_name_is_refused_since_it_would_begin_anew() -> None:
    before = of(sums(rows()))
    assert "generator 'rows' is not there any more" in refusal(before, of(sums(rows("readings"))))
    assert "nothing 'out' is not there any more" in refusal(before, of(sums(rows()), sink="result"))


def test_a_name_that_has_become_something_else_is_refused() -> None:
    now = rows().key_by("sensor").reduce(lambda one, other: one, name="sums")
    assert "stateful 'sums' has become a reduce" in refusal(of(sums(rows())), of(now))
    assert "keeps nothing any more" in refusal(of(sums(rows())), of(rows().map(lambda batch: batch, name="sums")))


def test_what_is_given_up_must_be_there() -> None:
    assert "there is no 'sum' to give up" in refusal(of(sums(rows())), of(sums(rows())), "sum")


def test_all_that_stands_against_it_is_told_at_once() -> None:
    with pytest.raises(UpgradeRefused) as refused:
        after(of(sums(rows())), of(sums(rows("readings"), key="room")))
    assert len(refused.value.reasons) == 2


def test_unnamed_ones_go_on_in_order_while_there_are_as_many() -> None:
    """Names that nobody gave are numbers: with one more in front, the first becomes the second."""
    one, two = of(sums(rows(), name=None)), of(sums(sums(rows(), name=None).map(lambda batch: batch), name=None))
    assert after(one, one).kept == ("rows", "stateful", "out")
    assert "may be any: give the new ones names" in refusal(one, two)
    named = of(sums(sums(rows(), name="first").map(lambda batch: batch), name=None))
    assert after(one, named).kept == ("rows", "stateful", "out")


def windows(size: str = "1 minute", *aggregates: Any, **how: Any) -> Stream:
    """A window whose settings are at stake."""
    marked = rows().with_watermark("at", "10 seconds", name="marked")
    made = aggregates or (F.count(),)
    return marked.key_by("sensor").window(F.window("at", size), **how).agg(*made, name="minutes")


@pytest.mark.parametrize(
    "now",
    [windows("2 minutes"), windows("1 minute", F.sum("v")), windows(lateness="1 minute"), windows(early="10 seconds")],
    ids=["size", "aggregate", "lateness", "early"],
)
def test_state_made_under_other_settings_is_refused(now: Stream) -> None:
    assert "window 'minutes' has its state with " in refusal(of(windows()), of(now))


def test_settings_that_do_not_touch_the_state_may_change() -> None:
    """What a result is called; how long the watermark waits."""
    renamed = windows("1 minute", F.count().alias("rows"))
    assert "minutes" in after(of(windows()), of(renamed)).kept
    patient = rows().with_watermark("at", "1 hour", name="marked")
    now = patient.key_by("sensor").window(F.window("at", "1 minute")).agg(F.count(), name="minutes")
    assert after(of(windows()), of(now)).kept == ("rows", "marked", "minutes", "out")


def test_a_position_in_another_file_is_refused() -> None:
    def reading(path: str, out: str) -> Manifest:
        lines = hw.read.json(path, name="lines").map(lambda batch: batch)
        return manifest_of(compile_flow(hw.flow("f", lines.sink(hw.to.csv(out), name="out"))))

    assert "has its position with path='a.json'" in refusal(reading("a.json", "o.csv"), reading("b.json", "o.csv"))
    assert "csv 'out' has its position with path='o.csv'" in refusal(reading("a", "o.csv"), reading("a", "p.csv"))


def test_a_table_that_would_get_other_columns_is_refused_where_they_are_known() -> None:
    """A CSV file has the columns of its first line."""

    def writing(*columns: str) -> Manifest:
        return manifest_of(compile_flow(hw.flow("f", rows().select(*columns).sink(hw.to.csv("o.csv"), name="out"))))

    assert "has rows of the columns sensor, and would get sensor, v" in refusal(
        writing("sensor"), writing("sensor", "v")
    )


def test_a_manifest_says_nothing_of_where_objects_lie_in_memory() -> None:
    """Two builds of one flow have equal manifests, and the manifest survives being stored."""
    first, second = (of(windows(), sums(rows("more")), sink="out") for _ in range(2))
    assert first == second
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=Manifest) == first


def test_every_operator_with_a_key_says_what_its_state_depends_on() -> None:
    """A new operator must not be taken for one without state."""

    def below(kind: type[Any]) -> list[type[Any]]:
        return [deeper for one in kind.__subclasses__() for deeper in (one, *below(one))]

    ours = [one for one in below(Operator) if one.__module__.startswith("headwater.operators")]
    keyed = {one for one in ours if one.key is not Operator.key}
    assert keyed
    assert {one.__name__ for one in keyed if one.state_settings is Operator.state_settings} == set()
