"""An instant stays an instant, and a time without a zone stays as it stands, whoever reads or writes it."""

import datetime as dt
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.connectors import read, senml, to
from headwater.connectors.columns import KnownColumns
from headwater.connectors.mqtt.messages import MessageReader, MqttMessage
from headwater.connectors.mqtt.sink import MqttSink
from headwater.dataflow.connectors import SinkSpec
from headwater.dataflow.stream import Stream
from headwater.model.errors import ConnectorError, SchemaMismatch
from tests.connectors.polls import drained, rows_in, written

BEGINNING = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone are what this is about
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = st.sampled_from(sorted(PER_SECOND))
ZONES = st.sampled_from(["UTC", "+02:00", "-05:30", "Europe/Berlin", "America/New_York"])
SECONDS = st.integers(-2_000_000_000, 4_000_000_000)  # 1906 to 2096: also zones that were not of whole minutes
OFFSETS = st.sampled_from(["Z", "+02:00", "+0200", "+02", "-05:30", "-0530", "+00:00", "+14:00"])


@st.composite
def stamped(draw: st.DrawFn) -> pa.RecordBatch:
    """Instants and times without a zone, in any unit, with gaps; the last digit of each is in use."""
    unit, zone = draw(UNITS), draw(ZONES)
    per_second = PER_SECOND[unit]
    fraction = st.integers(0, per_second - 1).map(lambda part: part - part % 10 + 1 if per_second > 1 else 0)
    ticks = st.builds(lambda whole, part: whole * per_second + part, SECONDS, fraction)
    count = draw(st.integers(1, 5))
    column = st.lists(st.none() | ticks, min_size=count, max_size=count).filter(any)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array(draw(column), pa.timestamp(unit, zone)),
            pa.array(draw(column), pa.timestamp(unit)),
        ],
        names=["n", "instant", "local"],
    )


def ns_since_1970(column: pa.ChunkedArray | pa.Array) -> list[int | None]:
    """Return times exactly, whatever unit they have."""
    per_tick = 10**9 // PER_SECOND[column.type.unit]
    return [None if ticks is None else ticks * per_tick for ticks in column.cast(pa.int64()).to_pylist()]


def table_of(stream: Stream) -> pa.Table:
    """Return all that a stream reads, in one table."""
    return pa.Table.from_batches([answer.batch for answer in drained(stream)])


def same_times(found: pa.Table | pa.RecordBatch, batch: pa.RecordBatch) -> bool:
    """Whether the times are those of the batch, and have a zone where they should have one."""
    assert found.schema.field("instant").type.tz is not None
    assert found.schema.field("local").type.tz is None
    columns = ("instant", "local")
    return [ns_since_1970(found[name]) for name in columns] == [ns_since_1970(batch[name]) for name in columns]


FILES: list[tuple[Callable[[Path], SinkSpec], Callable[..., Stream], str]] = [
    (to.csv, read.csv, "rows.csv"),
    (to.json, read.json, "rows.json"),
    (to.parquet, read.parquet, "rows"),
]


@pytest.mark.parametrize(("write", "read_again", "name"), FILES)
@given(batch=stamped(), is_declared=st.booleans())
def test_what_a_file_keeps_are_the_same_instants(
    write: Callable[[Path], SinkSpec],
    read_again: Callable[..., Stream],
    name: str,
    batch: pa.RecordBatch,
    is_declared: bool,
) -> None:
    """Whether the schema is declared or found out, in every unit and zone."""
    with tempfile.TemporaryDirectory() as room:
        written(write(Path(room) / name), batch)
        found = table_of(read_again(Path(room) / name, schema=batch.schema if is_declared else None))
        assert same_times(found, batch)
        assert not is_declared or found.schema.equals(batch.schema)


@given(batch=stamped(), is_declared=st.booleans())
def test_what_a_broker_passes_on_are_the_same_instants(batch: pa.RecordBatch, is_declared: bool) -> None:
    """As the sink of MQTT writes messages and its source reads them."""
    sink = to.mqtt("mqtt://broker/topic")
    assert isinstance(sink, MqttSink)
    messages = [MqttMessage("topic", payload, False, 0, None) for payload in sink.encoder()(batch)]
    reader = MessageReader(
        "json", KnownColumns(batch.schema if is_declared else None), topic_column=None, retained_column=None
    )
    assert same_times(reader.read(messages, 100, 0, skip_bad=False).batch, batch)


@given(batch=stamped())
def test_senml_keeps_instants_to_the_microsecond_and_takes_times_without_a_zone_for_utc(batch: pa.RecordBatch) -> None:
    """SenML has only numbers, of seconds since 1970; what is before 1978 it cannot write."""
    later = pa.array([300_000_000_000_000 + n for n in range(batch.num_rows)], pa.timestamp("us"))
    for column in (later, later.cast(pa.timestamp("us", "Europe/Berlin"))):
        rows = pa.record_batch({"name": ["a"] * batch.num_rows, "time": column, "value": [1.0] * batch.num_rows})
        again = senml.decode_packs([senml.encode(rows)], 0).batch
        assert again.schema.field("time").type.tz == "UTC"
        assert again["time"].cast(pa.int64()).equals(later.cast(pa.int64()))


@given(batch=stamped())
def test_memory_and_rows_in_memory_keep_instants(batch: pa.RecordBatch) -> None:
    """Also where another batch has the same columns with other zones, or none."""
    sink = to.memory()
    others = batch.set_column(1, "instant", batch["instant"].cast(pa.timestamp("us", "Asia/Tokyo"), safe=False))
    written(sink, batch, others)
    assert same_times(sink.table().slice(0, batch.num_rows), batch)
    assert same_times(table_of(read.iterable([batch])), batch)


@given(
    moments=st.lists(
        st.tuples(
            st.datetimes(BEGINNING + dt.timedelta(days=1), BEGINNING + dt.timedelta(days=80_000)),
            st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=2)), ZoneInfo("Europe/Berlin")]),
        ),
        min_size=1,
        max_size=5,
    )
)
@pytest.mark.parametrize("shape", ["rows", "columns", "frame", "nested"])
def test_python_times_of_several_zones_in_one_column_are_the_same_instants(
    shape: str, moments: list[tuple[dt.datetime, dt.tzinfo | None]]
) -> None:
    """The first of them decides nothing; those without a zone count as UTC if others have one."""
    given_times = [moment.replace(tzinfo=zone) for moment, zone in moments]
    items: Any = {
        "rows": [{"at": one} for one in given_times],
        "columns": [{"at": one} for one in given_times],
        "frame": [pd.DataFrame({"at": pd.Series(given_times, dtype=object)})],
        "nested": [{"at": {"inner": [one]}} for one in given_times],
    }[shape]
    stream = read.generator(lambda first, count: {"at": given_times}) if shape == "columns" else read.iterable(items)
    column = table_of(stream)["at"].combine_chunks()
    if shape == "nested":
        column = column.field("inner").values
    any_zone = any(zone is not None for _, zone in moments)
    assert (column.type.tz is not None) == any_zone
    utc = [one if one.tzinfo is not None else one.replace(tzinfo=dt.UTC) for one in given_times]
    assert ns_since_1970(column) == [
        round((one - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1)) * 1000 for one in utc
    ]


def test_a_day_before_instants_does_not_make_days_of_them() -> None:
    """A day is the time at which it begins."""
    rows = [{"at": dt.date(2026, 1, 1)}, {"at": dt.datetime(2026, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))}]
    midnight = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert rows_in(drained(read.iterable(rows))) == [{"at": midnight}, {"at": midnight}]


@st.composite
def time_texts(draw: st.DrawFn) -> tuple[str, int, bool]:
    """A time as it may be written, its nanoseconds since 1970 (UTC where it has no zone), and whether it has one."""
    moment = BEGINNING + dt.timedelta(seconds=draw(SECONDS))
    digits = draw(st.integers(0, 9))
    fraction = draw(st.integers(0, 10**digits - 1)) if digits else 0
    zone = draw(st.just("") | OFFSETS)
    text = moment.isoformat(sep=draw(st.sampled_from("T ")))
    text += f".{fraction:0{digits}}" if digits else ""
    sign = -1 if zone[:1] == "-" else 1
    numbers = zone.lstrip("+-Z").replace(":", "").ljust(4, "0")
    offset_s = sign * (int(numbers[:2]) * 3600 + int(numbers[2:]) * 60) if zone else 0
    seconds = round((moment - BEGINNING) / dt.timedelta(seconds=1)) - offset_s
    return text + zone, seconds * 10**9 + fraction * 10 ** (9 - digits), bool(zone)


def json_file(room: Path, texts: Sequence[str]) -> Path:
    """Write texts as JSON lines."""
    path = room / "texts.json"
    path.write_bytes(b"".join(orjson.dumps({"at": text, "n": n}) + b"\n" for n, text in enumerate(texts)))
    return path


def csv_file(room: Path, texts: Sequence[str]) -> Path:
    """Write texts as CSV."""
    path = room / "texts.csv"
    path.write_text("at,n\n" + "".join(f"{text},{n}\n" for n, text in enumerate(texts)))
    return path


READERS = [(read.json, json_file), (read.csv, csv_file)]


@pytest.mark.parametrize(("read_it", "write_it"), READERS)
@given(told=st.lists(time_texts(), min_size=1, max_size=6), is_declared=st.booleans())
def test_times_are_read_as_they_are_written(
    read_it: Callable[..., Stream],
    write_it: Callable[[Path, Sequence[str]], Path],
    told: list[tuple[str, int, bool]],
    is_declared: bool,
) -> None:
    """Every offset, every number of digits, zones mixed and some without one: by one rule."""
    schema = pa.schema([("at", pa.timestamp("ns", "UTC")), ("n", pa.int64())]) if is_declared else None
    with tempfile.TemporaryDirectory() as room:
        found = table_of(read_it(write_it(Path(room), [text for text, _, _ in told]), schema=schema))["at"]
    assert ns_since_1970(found) == [since for _, since, _ in told]
    assert (found.type.tz is not None) == (is_declared or any(has_zone for _, _, has_zone in told))


@pytest.mark.parametrize(("read_it", "write_it"), READERS)
def test_an_offset_is_not_lost(
    read_it: Callable[..., Stream], write_it: Callable[[Path, Sequence[str]], Path], tmp_path: Path
) -> None:
    """Two o'clock, two hours ahead of UTC, is midnight in UTC, and says so."""
    rows = rows_in(drained(read_it(write_it(tmp_path, ["2026-01-01T02:00:00+02:00"]))))
    assert [row["at"] for row in rows] == [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
    assert rows[0]["at"].tzinfo is not None


@pytest.mark.parametrize(("read_it", "write_it"), READERS)
def test_a_column_that_has_shown_no_zone_becomes_one_of_instants_with_the_first_that_has_one(
    read_it: Callable[..., Stream], write_it: Callable[[Path, Sequence[str]], Path], tmp_path: Path
) -> None:
    """Chunks of a file are parsed one by one, and the rule must not depend on where they are cut."""
    texts = ["2026-01-01T00:00:00"] * 20_000 + ["2026-01-01T02:00:00.5+0200"]
    answers = drained(read_it(write_it(tmp_path, texts)), rows_max=100_000)
    first, last = answers[0].batch["at"], answers[-1].batch["at"]
    assert first.type == pa.timestamp("s")
    assert last.type.tz == "UTC"
    assert ns_since_1970(last)[-1] == 1_767_225_600_500_000_000


@pytest.mark.parametrize(("read_it", "write_it"), READERS)
def test_an_instant_in_a_column_declared_without_a_zone_is_refused(
    read_it: Callable[..., Stream], write_it: Callable[[Path, Sequence[str]], Path], tmp_path: Path
) -> None:
    """Both possible answers would be wrong for somebody, so the reader is asked to say which is meant."""
    path = write_it(tmp_path, ["2026-01-01T02:00:00+02:00"])
    stream = read_it(path, schema=pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())]))
    with pytest.raises(
        ConnectorError, match=r'an instant, and .* would lose its zone; declare pa.timestamp\("us", "UTC"\)'
    ):
        drained(stream)


@pytest.mark.parametrize("form", ["parquet", "rows", "batch", "frame", "columns"])
def test_instants_in_a_column_declared_without_a_zone_are_refused_where_there_is_no_text(
    form: str, tmp_path: Path
) -> None:
    """As in files of text."""
    noon, schema = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), pa.schema([("at", pa.timestamp("us"))])
    batch = pa.record_batch({"at": pa.array([noon])})
    if form == "parquet":
        written(to.parquet(tmp_path / "rows"), batch)
    stream = {
        "parquet": lambda: read.parquet(tmp_path / "rows", schema=schema),
        "rows": lambda: read.iterable([{"at": noon}], schema=schema),
        "batch": lambda: read.iterable([batch], schema=schema),
        "frame": lambda: read.iterable([batch.to_pandas()], schema=schema),
        "columns": lambda: read.generator(lambda first, count: {"at": [noon]}, schema=schema),
    }[form]()
    with pytest.raises(SchemaMismatch, match="lose their zone"):
        drained(stream)


def test_times_inside_of_structs_and_lists_keep_their_zones(tmp_path: Path) -> None:
    """A field that a declared struct does not name is left out, one that is found out is read by the same rule."""
    text = "2026-01-01T02:00:00.000000007+02:00"
    (tmp_path / "x.json").write_bytes(orjson.dumps({"a": {"b": text, "c": [text, None], "d": "no time"}, "e": None}))
    expected = pd.Timestamp("2026-01-01T00:00:00.000000007Z")
    row = rows_in(drained(read.json(tmp_path / "x.json")))[0]
    assert row == {"a": {"b": expected, "c": [expected, None], "d": "no time"}, "e": None}


def test_what_looks_like_a_time_at_first_may_be_text() -> None:
    """One text that is no time makes the column one of texts, as it is."""
    texts = ["2026-01-01T02:00:00.5Z", "2026-13-01T02:00:00.5Z"]
    with tempfile.TemporaryDirectory() as room:
        for read_it, write_it in READERS:
            assert [row["at"] for row in rows_in(drained(read_it(write_it(Path(room), texts))))] == texts


@pytest.mark.parametrize("name", ["side.csv", "side.json"])
def test_tables_beside_a_stream_are_read_by_the_same_rule(name: str, tmp_path: Path) -> None:
    """Declared or found out."""
    write_it = csv_file if name.endswith("csv") else json_file
    path = write_it(tmp_path, ["2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00"])
    midnight = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for schema in (None, pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])):
        assert hw.table(str(path), schema=schema).load(0)["at"].to_pylist() == [midnight, midnight]


def test_the_console_shows_which_times_are_instants() -> None:
    """An offset stands behind them, and behind no other."""
    output = io.StringIO()
    midnight = pa.array([0], pa.timestamp("s"))
    written(
        to.console(file=output), pa.record_batch({"at": midnight.cast(pa.timestamp("s", "UTC")), "local": midnight})
    )
    assert output.getvalue().splitlines()[1].split("  ") == ["1970-01-01 00:00:00+00:00", "1970-01-01 00:00:00"]
