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


class Processor:
    """Declares a value, a list and a map of a schema, and does nothing with them."""

    def __init__(self, schema: str, *, anew: bool = False, key: str = "k int") -> None:
        self.schema, self.anew, self.key = schema, anew, key

    def init(self, handle: Any) -> None:
        """Declare them."""
        if not self.schema:
            raise OSError("a file that only workers have")
        for name in "vlm" if self.anew else "":
            handle.deleteIfExists(name)
        handle.getValueState("v", self.schema)
        handle.getListState("l", self.schema)
        handle.getMapState("m", self.key, self.schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - PySpark's names
        """Make nothing of rows."""
        return iter(())

    def close(self) -> None:
        """Have nothing to close."""


def processed(schema: str, **how: Any) -> Manifest:
    """The manifest of a flow with a processor whose variables have this schema."""
    return of(rows().key_by("sensor").process(Processor(schema, **how), "id string", name="it"))


@pytest.mark.parametrize(
    "schema", ["a int", "b string, a int", "a bigint", "a double, c array<int>", "b string"], ids=str
)
def test_a_processor_whose_state_has_other_fields_goes_on(schema: str) -> None:
    """They are added, removed, reordered or widened; what they were before stays known."""
    before = processed("a int, b string")
    found = after(before, processed(schema))
    assert found.kept == ("rows", "it", "out")
    kept = found.after.find("it")
    assert kept is not None
    assert [one.value for one in kept.variables["v"]] == ["a int, b string", schema]
    assert found.after.form == before.form


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (processed("a int"), "field 'a' was bigint and would be int"),
        (processed("a string"), "field 'a' was bigint and would be string"),
        (processed("a long", key="k long"), "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
    ],
    ids=["narrower", "other", "key"],
)
def test_a_processor_that_could_not_read_its_state_is_refused(now: Manifest, told: str) -> None:
    """By operator, variable, both schemas and field, with Spark's condition, and what to do."""
    refused = refusal(processed("a long"), now)
    assert told in refused
    assert "process 'it': [STATE_STORE_" in refused
    assert refused.endswith("(or give up its state: --discard it)")
    assert after(processed("a long"), now, "it").begun == ("it",)


def test_all_schemas_that_there_ever_were_count() -> None:
    """Also those that the version in between could not have meant."""
    second = after(processed("a string"), processed("b int")).after
    assert "field 'a' was string and would be int" in refusal(second, processed("a int, b int"))
    third = after(second, processed("a string, b long")).after
    assert after(third, processed("a binary")).kept
    back = after(after(processed("a int"), processed("a int, b int")).after, processed("a int")).after.find("it")
    assert back is not None
    assert [one.value for one in back.variables["v"]] == ["a int, b int", "a int"]


def test_what_a_processor_deletes_it_may_declare_anew() -> None:
    found = after(processed("a string"), processed("a int", anew=True)).after.find("it")
    assert found is not None
    assert [one.value for one in found.variables["v"]] == ["a int"]


def test_a_variable_has_as_many_schemas_as_in_spark() -> None:
    """Sixteen changes: the schema of each has to be kept for ever."""
    now = processed("a0 int")
    for number in range(1, 17):
        now = after(now, processed(f"a{number} int")).after
    assert "SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED] state 'v' has had 17" in refusal(now, processed("a17 int"))
    assert after(now, processed("a3 int")).kept


def test_a_version_that_noted_no_schemas_and_one_whose_init_fails_are_gone_on_from() -> None:
    """Workers see then whether state can be read; what was known stays so."""
    before, unknown = processed("a long"), processed("")
    kept = after(before, unknown).after.find("it")
    assert kept is not None
    assert [one.value for one in kept.variables["v"]] == ["a bigint"]
    assert after(before.form, processed("a int")).kept
    stored = msgspec.msgpack.encode(before)
    assert msgspec.msgpack.decode(stored, type=Manifest) == before


def test_a_flow_whose_state_has_a_schema_that_cannot_be_kept_is_refused_before_it_runs() -> None:
    """Nothing runs for it."""
    with pytest.raises(hw.FlowError, match="process 'it': the schema 'a' cannot be read"):
        processed("a")
    with pytest.raises(
        hw.FlowError, match=r"process 'it': \[TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE\].*; a may not"
    ):
        processed("a int not null, b string")
