"""From payloads to rows: many at a time, whatever is in them."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.columns import KnownColumns
from headwater.connectors.mqtt.messages import MessageFormat, MessageReader, MqttMessage, ReadRows
from headwater.model.errors import ConnectorError, SchemaMismatch

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
NOW_US = round(NOW.timestamp() * 1_000_000)


def reader(form: MessageFormat, schema: pa.Schema | None = None, **columns: str) -> MessageReader:
    """Return a reader of payloads."""
    extra: dict[str, str | None] = {"topic_column": None, "retained_column": None, **columns}
    return MessageReader(form, KnownColumns(schema), **extra)


def messages(*payloads: bytes) -> list[MqttMessage]:
    """Return messages, every second of them retained, on topics a, b, ..."""
    return [MqttMessage("abcdefgh"[at % 8], one, at % 2 == 1, 0, None) for at, one in enumerate(payloads)]


def read(
    how: MessageReader, given: Sequence[MqttMessage], rows_max: int = 1_000, *, skip_bad: bool = True
) -> tuple[list[dict[str, Any]], ReadRows]:
    """Return the rows, and the whole answer."""
    answer = how.read(given, rows_max, NOW_US, skip_bad=skip_bad)
    return answer.batch.to_pylist(), answer


def test_json_objects_are_rows_in_columns_that_grow() -> None:
    json = reader("json")
    rows, _ = read(json, messages(b'{"n": 1}', b'{"n": 2.5, "s": "x"}', b'{\n  "n": 3,\r\n  "s": "a\\nb"\n}'))
    assert rows == [{"n": 1.0, "s": None}, {"n": 2.5, "s": "x"}, {"n": 3.0, "s": "a\nb"}]
    rows, _ = read(json, messages(b'{"flag": true}'))
    assert rows == [{"n": None, "s": None, "flag": True}]


def test_declared_columns_are_the_law() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    rows, answer = read(
        reader("json", schema), messages(b'{"n": 1, "at": "2026-06-01T00:00:00Z", "more": 1}', b'{"n": "x"}', b"{}")
    )
    assert rows == [{"at": NOW, "n": 1}, {"at": None, "n": None}]
    assert (answer.messages, answer.unparsable) == (3, 1)
    assert answer.batch.schema.equals(schema)


@pytest.mark.parametrize(
    "payloads",
    [
        (b'{"n":', b"1}", b'{"n": 2}{"n": 3}'),  # as many rows as messages, were they read as one text
        (b'{"n": 1}\n{"n": 2}', b" "),
        (b"[1]", b"1", b'"x"', b"null", b"", b"\xff", b"NaN", b"{'n': 1}"),
    ],
)
def test_messages_that_are_not_one_object_each_are_none(payloads: tuple[bytes, ...]) -> None:
    rows, answer = read(reader("json"), messages(*payloads))
    assert (rows, answer.unparsable) == ([], len(payloads))


def test_rows_keep_the_topic_and_the_mark_of_their_message_where_others_are_left_out() -> None:
    json = reader("json", topic_column="topic", retained_column="retained")
    rows, answer = read(json, messages(b'{"n": 0}', b"no", b'{"n": 2}', b'{"n": 3}'))
    assert rows == [
        {"n": 0, "topic": "a", "retained": False},
        {"n": 2, "topic": "c", "retained": False},
        {"n": 3, "topic": "d", "retained": True},
    ]
    assert answer.unparsable == 1


def test_a_field_with_the_name_of_the_topics_column_is_told() -> None:
    with pytest.raises(SchemaMismatch, match="has a field 'topic', the name of the column for its topic"):
        read(reader("json", topic_column="topic"), messages(b'{"topic": 1}'))


def test_texts_are_lines_without_the_newline_they_end_in() -> None:
    rows, answer = read(reader("text"), messages(b"a,b", b"c\r\n", b"", b"two\nlines\n", b"\xff\xfe", "ü".encode()))
    assert [row["line"] for row in rows] == ["a,b", "c", "", "two\nlines", "ü"]
    assert answer.unparsable == 1


def test_bytes_are_rows_as_they_are() -> None:
    rows, _ = read(reader("bytes"), messages(b"\x00\xff", b""))
    assert rows == [{"payload": b"\x00\xff"}, {"payload": b""}]


def test_a_pack_is_a_row_for_each_record_with_the_topic_of_its_message() -> None:
    senml = reader("senml", topic_column="topic")
    rows, answer = read(senml, messages(b'[{"n":"x","v":1},{"n":"y","v":2}]', b"[]", b"{}", b'[{"n":"z","v":3}]'))
    assert [(row["topic"], row["name"], row["value"], row["time"]) for row in rows] == [
        ("a", "x", 1.0, NOW),
        ("a", "y", 2.0, NOW),
        ("d", "z", 3.0, NOW),
    ]
    assert (answer.messages, answer.unparsable) == (4, 1)


def test_a_message_is_never_cut_and_one_that_is_too_long_stands_alone() -> None:
    """So that a message is acknowledged when all its rows are committed."""
    senml = reader("senml")
    packs = [orjson.dumps([{"n": f"m{at}", "v": row} for row in range(rows)]) for at, rows in enumerate((3, 4, 9, 1))]
    left, taken = messages(*packs), []
    while left:
        rows, answer = read(senml, left, rows_max=8)
        taken.append((answer.messages, len(rows)))
        left = left[answer.messages :]
    assert taken == [(2, 7), (1, 9), (1, 1)]


def test_fewer_messages_are_asked_for_when_each_has_many_rows() -> None:
    senml = reader("senml")
    assert senml.fitting(1_000) == 1_000
    read(senml, messages(orjson.dumps([{"n": "a", "v": row} for row in range(50)])))
    assert senml.fitting(1_000) == 20


def test_without_skipping_the_rows_before_a_bad_message_come_first_and_then_the_reason() -> None:
    json, given = reader("json"), messages(b'{"n": 1}', b"no", b'{"n": 2}')
    rows, answer = read(json, given, skip_bad=False)
    assert (rows, answer.messages, answer.unparsable) == ([{"n": 1}], 1, 0)
    with pytest.raises(ConnectorError, match=r"a message on topic 'b' is not JSON: .* or pass bad_messages='skip'"):
        read(json, given[1:], skip_bad=False)


def test_a_message_that_was_bad_on_arrival_is_left_out_among_the_others() -> None:
    one, other = messages(b'{"n": 1}', b'{"n": 2}')
    spoilt = MqttMessage("s", b"", False, 0, None, "has 9 bytes, more than payload_bytes_max=8")
    rows, answer = read(reader("json", topic_column="topic"), [one, spoilt, other])
    assert [row["topic"] for row in rows] == ["a", "b"]
    assert (answer.messages, answer.unparsable) == (3, 1)


NUMBERS = st.integers(-(2**63), 2**63 - 1)
OBJECTS = st.dictionaries(st.sampled_from("ab"), NUMBERS | st.text()).map(orjson.dumps)


@given(st.lists(st.binary(max_size=12) | OBJECTS))
def test_garbage_gives_rows_or_is_counted(payloads: list[bytes]) -> None:
    rows, answer = read(reader("json", pa.schema([("a", pa.int64())])), messages(*payloads))
    assert len(rows) + answer.unparsable == len(payloads) == answer.messages
