"""What is in a file, and what is wrong with it: rows, types, and sentences that name file and line."""

import gzip
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.connectors import read
from headwater.connectors.files.formats import TextFormat
from headwater.connectors.sources import CsvSource, JsonSource, LineSource, TextSource
from headwater.dataflow.connectors import told_by
from headwater.dataflow.stream import Stream, source
from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from tests.connectors.polls import drained, polled, read_with_restarts, rest_of, rows_in, spec_of

PAIR = pa.schema([("a", pa.int64()), ("b", pa.string())])


def rows_of(stream: Stream) -> list[dict[str, object]]:
    """Return all rows."""
    return rows_in(drained(stream))


def file_with(directory: Path, content: str | bytes, name: str = "x.csv") -> Path:
    """Write a file and return its path."""
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("content", ["", "a,b\n", "a,b", "\n\n", "\ufeffa,b\n", "a,b\r\n\r\n"])
def test_a_csv_file_without_rows_simply_ends(tmp_path: Path, content: str) -> None:
    """Empty, blank, or a header only."""
    assert rows_of(read.csv(file_with(tmp_path, content))) == []


@pytest.mark.parametrize("name", ["json", "text"])
def test_an_empty_file_of_lines_simply_ends(tmp_path: Path, name: str) -> None:
    """No line, no row."""
    path = file_with(tmp_path, "")
    assert rows_of(read.json(path) if name == "json" else read.text(path)) == []


def test_byte_order_mark_crlf_blank_lines_and_unicode_are_no_trouble(tmp_path: Path) -> None:
    """As spreadsheets write it."""
    path = file_with(tmp_path, "\ufeffcity,temperature\r\n\r\nZürich,1.5\r\n東京,2.5\r\n")
    assert rows_of(read.csv(path)) == [
        {"city": "Zürich", "temperature": 1.5},
        {"city": "東京", "temperature": 2.5},
    ]


def test_a_newline_inside_quotes_does_not_end_a_record(tmp_path: Path) -> None:
    """Whatever the chunk size."""
    path = file_with(tmp_path, 'a,b\n1,"x\n\ny ""z"", ,"\n2,5" pipe\n3,"end"')
    expected = [{"a": 1, "b": 'x\n\ny "z", ,'}, {"a": 2, "b": '5" pipe'}, {"a": 3, "b": "end"}]
    for chunk_bytes in (1, 4, 9, 1000):
        assert rows_of(source(CsvSource(path=str(path), chunk_bytes=chunk_bytes))) == expected


def test_a_file_without_a_header_gets_names_or_takes_those_declared(tmp_path: Path) -> None:
    """Names by number, from 1."""
    path = file_with(tmp_path, "1;x\n2;y\n")
    assert rows_of(read.csv(path, header=False, delimiter=";"))[0] == {"column_1": 1, "column_2": "x"}
    assert rows_of(read.csv(path, header=False, delimiter=";", schema=PAIR))[1] == {"a": 2, "b": "y"}


def test_an_unquoted_empty_field_is_null_and_a_quoted_one_is_empty_text(tmp_path: Path) -> None:
    """So what to.csv writes is what read.csv reads; other words for null can be named."""
    path = file_with(tmp_path, 'a,b\n1,\n,""\nNA,x\n')
    assert rows_of(read.csv(path, nulls=("", "NA"))) == [
        {"a": 1, "b": None},
        {"a": None, "b": ""},
        {"a": None, "b": "x"},
    ]


def test_types_that_were_not_declared_widen_with_later_rows(tmp_path: Path) -> None:
    """Whole numbers to fractions to text; rows sent before keep their narrower type."""
    path = file_with(tmp_path, "a\n1234567\n1.55555\n7654321\nwordword\n")
    answers = drained(source(CsvSource(path=str(path), chunk_bytes=8)))
    assert [str(answer.batch.schema.field("a").type) for answer in answers] == ["int64", "double", "double", "string"]
    assert [row["a"] for row in rows_in(answers)] == [1234567, 1.55555, 7654321.0, "wordword"]


def test_widened_types_survive_a_restart(tmp_path: Path) -> None:
    """What was learnt is part of the position."""
    path = file_with(tmp_path, "a\n1.5\n2\n3\n")
    spec = spec_of(read.csv(path))
    first = polled(spec.open(None), rows_max=1)
    rest = polled(spec.open(first.position))
    assert rest.batch.schema == first.batch.schema


def test_json_fields_may_come_and_go(tmp_path: Path) -> None:
    """A field that is not there is null; one that comes later joins at the end."""
    path = file_with(tmp_path, '{"a":1}\n{"b":{"c":[1]},"a":2.5}\n', "x.json")
    assert rows_of(read.json(path)) == [{"a": 1.0, "b": None}, {"a": 2.5, "b": {"c": [1]}}]


def test_a_declared_schema_picks_json_fields(tmp_path: Path) -> None:
    """Other fields are left out."""
    path = file_with(tmp_path, '{"a":1,"b":"x","c":3}\n', "x.json")
    assert rows_of(read.json(path, schema=PAIR)) == [{"a": 1, "b": "x"}]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a,b\n1,x\n2,y\nthree,z\n", r"x\.csv:4: .*'three' in column 'a', which is not int64; correct it, or pass bad"),
        ("a,b\n1,x\n\n2\n", r"x\.csv:4: the line has 1 fields where 2 are expected"),
        ('a,b\n1,"x\ny"\n2,y,z\n', r"x\.csv:4: the line has 3 fields where 2 are expected"),
        ("a,b\n1,x\n2,\udcff\n", r"x\.csv:3: the line is not UTF-8 text: byte 0xff"),
        ('a,b\n1,x\n2,"open\n3,z\n', r"x\.csv:3: the line opens a quote that is never closed"),
    ],
)
def test_a_bad_csv_line_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    """The rows before it are sent first."""
    path = file_with(tmp_path, content.encode(errors="surrogateescape"))
    reader = spec_of(read.csv(path, schema=PAIR)).open(None)
    assert polled(reader).batch.to_pylist()[0]["a"] == 1
    with pytest.raises(ConnectorError, match=sentence):
        reader.poll(1000, 0)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"a":1', r"x\.json:2: the line is not JSON: .*; correct it"),
        ("[1]", r"x\.json:2: the line is a JSON list, not an object"),
        (" null", r"x\.json:2: the line is a JSON null, not an object"),
        ('{"a":"one"}', r"x\.json:2: the line has 'one' in column 'a', which is not int64"),
        ('{"a":1} {"a":2}', r"x\.json:2: the line is not JSON"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, sentence: str, declared: bool) -> None:
    """Whether the schema was declared or learnt from the rows before it."""
    path = file_with(tmp_path, f'{{"a":1}}\n{line}\n{{"a":3}}\n', "x.json")
    reader = spec_of(read.json(path, schema=PAIR if declared else None)).open(None)
    assert polled(reader).batch.num_rows == 1
    with pytest.raises(ConnectorError, match=sentence):
        reader.poll(1000, 0)


@pytest.mark.parametrize(
    "content", ["null\n", " \tnull", "null\n" * 100, 'null {"a":1}\n', '{"a":1}\n' * 50 + "null\n"]
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_json_null_is_no_row_and_no_end_of_the_process(tmp_path: Path, content: str, declared: bool) -> None:
    """Arrow's reader dies of it, and a sensor may send it."""
    path = file_with(tmp_path, content, "x.json")
    answers = drained(read.json(path, schema=PAIR if declared else None, bad_lines="skip"))
    assert [row["a"] for row in rows_in(answers)] == [1] * content.count("}\n{") + [1] * content.startswith("{")
    assert sum(answer.unparsable for answer in answers) == content.count("null")


def test_bad_lines_are_skipped_and_counted_if_so_wished(tmp_path: Path) -> None:
    """Each is counted once, also across restarts."""
    path = file_with(tmp_path, "a,b\nbad\n1,x\n2\nno,y\n3,z\n4,w,\n")
    spec = spec_of(read.csv(path, schema=PAIR, bad_lines="skip"))
    first = polled(spec.open(None), rows_max=1)
    rest = rest_of(spec.open(first.position))
    assert [row["a"] for row in rows_in([first, *rest])] == [1, 3]
    assert (first.unparsable, sum(answer.unparsable for answer in rest)) == (1, 3)


@pytest.mark.parametrize("good", [1, 200])
def test_a_line_without_a_column_that_each_row_must_have_is_bad_among_few_and_among_many(
    tmp_path: Path, good: int
) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    path = file_with(tmp_path, '{"a":1}\n' * good + "{}\n" + '{"a":2}\n', "x.json")
    assert rows_of(read.json(path, schema=schema, bad_lines="skip")) == [{"a": 1}] * good + [{"a": 2}]
    with pytest.raises(ConnectorError, match=rf"x\.json:{good + 1}"):
        rows_of(read.json(path, schema=schema))


def test_an_unclosed_quote_costs_one_line_if_bad_lines_are_skipped(tmp_path: Path) -> None:
    """Not the rest of the file."""
    answers = drained(read.csv(file_with(tmp_path, 'a,b\n1,x\n2,"open\n3,z\n'), schema=PAIR, bad_lines="skip"))
    assert [row["a"] for row in rows_in(answers)] == [1, 3]
    assert sum(answer.unparsable for answer in answers) == 1


def test_objects_without_a_field_are_rows_without_a_column(tmp_path: Path) -> None:
    """They neither vanish nor stop the reader."""
    answers = drained(read.json(file_with(tmp_path, '{}\n{}\n{"a":1}\n', "x.json")), rows_max=2)
    assert sum(answer.batch.num_rows for answer in answers) == 3


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(['"', ",", "\n", "\r", "1", "x", "1,x\n", '{"a":1}\n', "null", "{", "\x00", "é"]), max_size=25
    ),
    junk=st.binary(max_size=4),
    chunk_bytes=st.sampled_from([2, 7, 4096]),
    kind=st.sampled_from([CsvSource, JsonSource, TextSource]),
)
def test_any_bytes_are_rows_or_counted_lines_or_one_clear_refusal(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], junk: bytes, chunk_bytes: int, kind: type[LineSource]
) -> None:
    """Whatever is in the file, nothing else escapes, and skipping bad lines always reaches the end."""
    path = tmp_path_factory.getbasetemp() / "junk"
    path.write_bytes(b"a,b\n" + "".join(pieces).encode() + junk)
    schema = None if kind is JsonSource else PAIR if kind is CsvSource else TextFormat.schema
    spec = kind(path=str(path), schema=schema, bad_lines="skip", chunk_bytes=chunk_bytes)
    skipped = drained(source(spec))
    assert read_with_restarts(source(spec), [(1, True, True)]) == rows_in(skipped)
    if any(answer.unparsable for answer in skipped):
        with pytest.raises(ConnectorError, match=r"junk:\d+: the line .*; correct it, or pass"):
            drained(source(replace(spec, bad_lines="stop")))
    else:
        assert rows_in(drained(source(replace(spec, bad_lines="stop")))) == rows_in(skipped)


def test_bad_lines_alone_are_still_counted(tmp_path: Path) -> None:
    """Rows without a row carry the count and the position."""
    answers = drained(read.json(file_with(tmp_path, "no\nnope\n", "x.json"), bad_lines="skip"))
    assert [(answer.batch.num_rows, answer.unparsable) for answer in answers] == [(0, 2)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a,c\n1,2\n", r"x\.csv:1: column 'b' is missing, there are only: a, c"),
        ("a,b,c\n1,2,3\n", r"x\.csv:1: column 'c' is not one of those expected: a, b"),
        ("a,a\n1,2\n", r"x\.csv:1: column 'a' is there twice"),
    ],
)
def test_a_header_that_differs_from_the_schema_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    """The column is named."""
    with pytest.raises(SchemaMismatch, match=sentence):
        rows_of(read.csv(file_with(tmp_path, content), schema=PAIR))


def test_a_later_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    """The file is named."""
    file_with(tmp_path, "a,b\n1,2\n", "1.csv")
    file_with(tmp_path, "a,c\n1,2\n", "2.csv")
    with pytest.raises(SchemaMismatch, match=r"2\.csv:1: column 'b' is missing"):
        rows_of(read.csv(tmp_path))


@pytest.mark.parametrize("bad_lines", ["stop", "skip"])
@pytest.mark.parametrize("kind", [CsvSource, JsonSource, TextSource])
def test_a_compressed_file_is_refused_as_such(
    tmp_path: Path, kind: type[LineSource], bad_lines: Literal["stop", "skip"]
) -> None:
    """Whether its lines would be skipped or not: none of them is one."""
    path = file_with(tmp_path, gzip.compress(b"a,b\n1,x\n" * 100), "x.csv.gz")
    with pytest.raises(ConnectorError, match=r"x\.csv\.gz is compressed with gzip; unpack it first"):
        drained(source(kind(path=str(path), schema=PAIR if kind is CsvSource else None, bad_lines=bad_lines)))


@pytest.mark.parametrize("pattern", ["gone.csv", "gone/", "*.gone"])
def test_a_file_that_does_not_exist_is_named(tmp_path: Path, pattern: str) -> None:
    """So is a pattern that matches nothing."""
    with pytest.raises(ConnectorError, match=r"(does not exist|no file matches).*check the path"):
        spec_of(read.csv(tmp_path / pattern)).open(None)


def test_directories_that_match_a_pattern_are_left_out(tmp_path: Path) -> None:
    """Also if the pattern ends in a slash and matches nothing else."""
    (tmp_path / "day" / "x.csv").mkdir(parents=True)
    for pattern in ("*", "*/"):
        with pytest.raises(ConnectorError, match=r"no file matches .*/\*/?, so there is nothing to read"):
            spec_of(read.csv(f"{tmp_path}/{pattern}")).open(None)
    file_with(tmp_path / "day", "a\n1\n", "y.csv")
    assert rows_of(read.csv(f"{tmp_path}/*/*")) == [{"a": 1}]


def test_a_directory_without_files_is_named(tmp_path: Path) -> None:
    """Hidden files do not count."""
    file_with(tmp_path, "a\n", ".hidden")
    with pytest.raises(ConnectorError, match="holds no files"):
        spec_of(read.csv(tmp_path)).open(None)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    """As a user without rights: root may read everything, so the reader gives its rights away first."""
    path = file_with(tmp_path, "a\n1\n")
    path.chmod(0)
    tmp_path.chmod(0o755)
    program = (
        "import os, sys\n"
        "from headwater.connectors.files.files import OpenFile\n"
        "from headwater.model.errors import ConnectorError\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: OpenFile('x.csv')\n"
        "except ConnectorError as refusal: print(refusal)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout == "x.csv may not be read by this user; change its permissions or run as its owner\n"


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (None, "has vanished since the app stopped"),
        ("a\n", "has 2 bytes, but 4 had been read"),
        ("b\n7\n8\n", "is not the file that was being read"),
    ],
)
def test_a_file_that_changed_between_two_runs_is_refused(tmp_path: Path, after: str | None, sentence: str) -> None:
    """Going on in another file would be neither at least nor at most once."""
    path = file_with(tmp_path, "a\n1\n2\n")
    spec = spec_of(read.csv(path))
    position = polled(spec.open(None), rows_max=1).position
    path.unlink()
    if after is not None:
        path.write_text(after)
    with pytest.raises(ConnectorError, match=sentence):
        spec.open(position)


def test_a_file_that_leaves_the_directory_between_two_runs_is_named(tmp_path: Path) -> None:
    """It was not read to its end."""
    file_with(tmp_path, "a\n1\n2\n", "1.csv")
    file_with(tmp_path, "a\n3\n", "2.csv")
    spec = spec_of(read.csv(tmp_path))
    position = polled(spec.open(None), rows_max=1).position
    (tmp_path / "1.csv").unlink()
    with pytest.raises(
        ConnectorError, match=r"1\.csv, which was being read when the app stopped, is no longer part of"
    ):
        spec.open(position)


def test_a_file_that_disappears_before_its_turn_is_named(tmp_path: Path) -> None:
    """The list was fixed when the source was opened."""
    file_with(tmp_path, "a\n1\n", "1.csv")
    file_with(tmp_path, "a\n2\n", "2.csv")
    reader = spec_of(read.csv(tmp_path)).open(None)
    (tmp_path / "2.csv").unlink()
    polled(reader)
    with pytest.raises(ConnectorError, match=r"2\.csv does not exist"):
        reader.poll(1000, 0)


def test_a_loop_starts_over_for_ever_but_not_on_nothing(tmp_path: Path) -> None:
    """A source without a row ends, loop or not."""
    reader = spec_of(read.csv(file_with(tmp_path, "a\n1\n2\n"), loop=True)).open(None)
    assert [polled(reader).batch.to_pylist() for _ in range(3)] == [[{"a": 1}, {"a": 2}]] * 3
    assert rows_of(read.csv(file_with(tmp_path, "a\n", "empty.csv"), loop=True)) == []


def test_parquet_files_of_other_columns_or_none_at_all_are_refused(tmp_path: Path) -> None:
    """By name of the file."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "2.parquet")
    with pytest.raises(SchemaMismatch, match=r"2\.parquet: column 'a' is string here and int64"):
        rows_of(read.parquet(tmp_path))
    file_with(tmp_path, "no parquet", "0.parquet")
    with pytest.raises(ConnectorError, match=r"0\.parquet is not a complete Parquet file"):
        rows_of(read.parquet(tmp_path))


def test_a_declared_schema_brings_parquet_files_to_one_type(tmp_path: Path) -> None:
    """Where the values allow it."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.5]}), tmp_path / "2.parquet")
    assert rows_of(read.parquet(tmp_path, schema=pa.schema([("a", pa.float64())]))) == [{"a": 1.0}, {"a": 1.5}]


@pytest.mark.parametrize(
    "build",
    [
        lambda: read.csv("x", rate=0),
        lambda: read.csv("x", speed=-1, time_column="t"),
        lambda: read.csv("x", rate=1, time_column="t"),
        lambda: read.csv("x", follow=True, loop=True),
        lambda: read.csv("x", delimiter=";;"),
        lambda: read.csv("x", bad_lines="ignore"),  # type: ignore[arg-type]
        lambda: read.iterable(5),  # type: ignore[arg-type]
        lambda: read.generator("x"),  # type: ignore[arg-type]
        lambda: read.cities(sensors=0),
    ],
)
def test_what_cannot_be_meant_is_refused_while_the_flow_is_built(build: object) -> None:
    """Not when it runs."""
    assert callable(build)
    with pytest.raises(FlowError):
        build()


def _parquet(directory: Path, table: pa.Table, **settings: object) -> tuple[Path, bytes]:
    path = directory / "x.parquet"
    pq.write_table(table, path, **settings)
    return path, path.read_bytes()


def test_a_parquet_file_whose_column_has_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """One byte of the footer is enough."""
    path, content = _parquet(tmp_path, pa.table({"reading": [1, 2]}), store_schema=False)
    path.write_bytes(content.replace(b"reading", b"re\xffding"))
    with pytest.raises(ConnectorError, match=r"x\.parquet is not a complete Parquet file.*replace it or take it away"):
        rows_of(read.parquet(path))


def test_a_parquet_file_with_pages_that_hold_no_text_is_refused_before_a_row_of_them_is_taken(tmp_path: Path) -> None:
    """Without a checksum the page is read; the first function that looks at its texts would fail."""
    table = pa.table({"name": ["north"] * 3, "unit": ["kelvin"] * 3})
    path, content = _parquet(tmp_path, table, compression="none", use_dictionary=False, write_statistics=False)
    path.write_bytes(content.replace(b"north", b"n\xff\xffth"))
    with pytest.raises(ConnectorError, match=r"x\.parquet is damaged: .*UTF.?8.*replace it or take it away"):
        rows_of(read.parquet(path))


def test_a_page_that_is_not_what_was_written_is_refused_by_its_checksum(tmp_path: Path) -> None:
    """Numbers are numbers, whatever happened to them: only a checksum tells."""
    table = pa.table({"a": pa.array([0x1122334455667788] * 4, pa.int64())})
    path, content = _parquet(
        tmp_path, table, compression="none", use_dictionary=False, write_page_checksum=True, write_statistics=False
    )
    written = (0x1122334455667788).to_bytes(8, "little")
    path.write_bytes(content.replace(written, (7).to_bytes(8, "little"), 1))
    with pytest.raises(ConnectorError, match=r"x\.parquet is damaged: .*replace it or take it away"):
        rows_of(read.parquet(path))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "txt", "parquet"])
def test_whatever_is_in_a_file_comes_as_rows_or_ends_in_a_sentence(tmp_path: Path, ending: str) -> None:
    """Files of every kind with bytes changed, left out, put in or cut off, by seed."""
    path = tmp_path / f"x.{ending}"
    for seed in range(150):
        rng = random.Random(f"{ending} {seed}")
        path.write_bytes(mutated(_sample(ending), rng))
        bad_lines: Literal["stop", "skip"] = rng.choice(("stop", "skip"))
        match ending:
            case "csv":
                stream = read.csv(path, bad_lines=bad_lines, header=rng.random() < 0.7)
            case "jsonl":
                stream = read.json(path, bad_lines=bad_lines)
            case "txt":
                stream = read.text(path, bad_lines=bad_lines)
            case _:
                stream = read.parquet(path)
        refusal = _refusal_of(stream)
        assert refusal is None or str(path) in refusal, f"seed {seed}: {refusal}"
        assert refusal is None or len(refusal) < 1_000, f"seed {seed}"


def _refusal_of(stream: Stream) -> str | None:
    try:
        rows_of(stream)
    except ConnectorError as refusal:
        return str(refusal)
    return None


@cache
def _sample(ending: str) -> bytes:
    table = pa.table(
        {
            "a": list(range(60)),
            "s": [f'x "{number}", ä' for number in range(60)],
            "l": [[number, None] for number in range(60)],
            "d": pa.array(["one", "two"] * 30).dictionary_encode(),
            "m": pa.array(range(60), pa.decimal128(10, 2)),
        }
    )
    match ending:
        case "csv":
            return b"a,b,c\n" + b"".join(b'%d,"x ""y"" \n%d",%.3f\n' % (one, one, one / 3) for one in range(30))
        case "jsonl":
            return b"".join(b'{"a":%d,"s":"x","n":{"q":[1,{"z":null}]},"f":1.5e3}\n' % one for one in range(30))
        case "txt":
            return "one\ntwo\r\nä\n".encode() * 10
        case _:
            written = io.BytesIO()
            pq.write_table(table, written, row_group_size=25, compression="none")
            return written.getvalue()


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return what a bad disk, a broken copy or a joker may have made of a file."""
    changed = bytearray(content)
    at = rng.randrange(len(changed))
    match rng.randrange(8):
        case 0:
            del changed[at:]
        case 1:
            del changed[at : at + rng.randrange(1, 200)]
        case 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 50))
        case _:
            for _ in range(rng.choice((1, 1, 2, 4, 30))):
                changed[rng.randrange(len(changed))] = rng.choice(
                    (0, 10, 34, 44, 123, 127, 128, 255, rng.randrange(256))
                )
    return bytes(changed)


LONG_NAME = "column" * 200_000


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "declared", "value", "line"])
def test_an_error_quotes_no_more_than_a_person_reads(tmp_path: Path, kind: str) -> None:
    """Names of columns, values, types and what libraries say of them may have any length."""
    text = tmp_path / "x"
    parquet = tmp_path / "x.parquet"
    text.write_text(f"{LONG_NAME},b\n1,2\n")
    match kind:
        case "csv":
            stream = read.csv(text, schema=PAIR)
        case "json":
            text.write_text(f'{{"{LONG_NAME}":1}}\n{{"{LONG_NAME}":[1]}}\n')
            stream = read.json(text)
        case "parquet":
            pq.write_table(pa.table({LONG_NAME: [1]}), parquet)
            stream = read.parquet(parquet, schema=PAIR)
        case "declared":
            stream = read.csv(
                text, schema=pa.schema([(LONG_NAME, pa.struct([(LONG_NAME, pa.int64())])), ("b", pa.int64())])
            )
        case "value":
            pq.write_table(pa.table({"a": [LONG_NAME], "b": ["x"]}), parquet)
            stream = read.parquet(parquet, schema=PAIR)
        case _:
            text.write_text(f"a,b\n{LONG_NAME},2\n")
            stream = read.csv(text, schema=PAIR)
    with pytest.raises(ConnectorError) as refused:
        rows_of(stream)
    assert len(str(refused.value)) < 1_000, str(refused.value)[:2_000]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a,b\n", "has no rows"),
        ("a.json", b"", "is empty"),
        ("a.json", b"\n\n", "has no rows"),
        ("a.txt", b"", "is empty"),
        ("a.parquet", None, "has no rows"),
    ],
)
def test_a_file_without_rows_is_told(
    name: str, content: bytes | None, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log, and in the status; the rows of other files are read all the same."""
    readings: dict[str, Callable[[Path | str], Stream]] = {
        ".csv": read.csv,
        ".json": read.json,
        ".txt": read.text,
        ".parquet": read.parquet,
    }
    reading = readings[Path(name).suffix]
    for directory in ("one", "two"):
        path = tmp_path / directory / name
        path.parent.mkdir()
        if content is None:
            pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
        else:
            path.write_bytes(content)
    path = tmp_path / "one" / name
    reader = spec_of(reading(path)).open(None)
    assert rest_of(reader) == []
    assert (told_by(reader), caplog.messages) == (f"{path} {said}", [f"{path} {said}"])
    both = spec_of(reading(f"{tmp_path}/*/{name}")).open(None)
    assert rest_of(both) == []
    assert told_by(both) == f"{path} {said}, and 1 more"
    assert len(caplog.messages) == 2
