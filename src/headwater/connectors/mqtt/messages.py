"""Decodes the payloads of messages into rows, a whole backlog at a time.

A message is one row: a JSON object, a text, or plain bytes; a SenML pack is a row per record. An invalid message is
reported with its topic and the reason, or, on request, left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from headwater.connectors import senml
from headwater.connectors.columns import KnownColumns
from headwater.connectors.files.decoding import BadLine, Decoder
from headwater.connectors.files.formats import JsonFormat, TextFormat
from headwater.connectors.files.lines import Cut
from headwater.connectors.mqtt.receipts import Receipt
from headwater.model.errors import ConnectorError, SchemaMismatch
from headwater.model.quoting import quoted

MessageFormat = Literal["json", "text", "bytes", "senml"]
FORMATS: Final = ("json", "text", "bytes", "senml")
BYTES_SCHEMA: Final = pa.schema([("payload", pa.binary())])
FIXED_COLUMNS: Final = {"text": TextFormat.schema, "bytes": BYTES_SCHEMA, "senml": senml.SCHEMA}

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """A message as it came; without its payload if that was too large."""

    topic: str
    payload: bytes
    retained: bool
    arrived_us: int
    receipt: Receipt | None  # None at QoS 0, which has no acknowledgements
    problem: str | None = None  # why it is no row, if that was clear on arrival


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows, the number of the payload of each, and the invalid payloads."""

    batch: pa.RecordBatch
    origins: Numbers
    bad: dict[int, str] = field(default_factory=dict)


class Payloads(Protocol):
    """One way in which rows are written as payloads."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, as far as they are known."""
        ...

    def parse(self, payloads: Sequence[bytes], now_us: int) -> Parsed:
        """Return the rows of all valid payloads."""
        ...


class JsonPayloads:
    """Payloads that are JSON objects."""

    def __init__(self, known: KnownColumns) -> None:
        """Read the known columns, or learn them."""
        self._known = known
        self._decoder = Decoder(JsonFormat(), known, skip_bad=True)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, as far as they are known."""
        return self._known.schema

    def parse(self, payloads: Sequence[bytes], now_us: int) -> Parsed:
        """Parse all objects at once, as lines, after checking that each is one."""
        bad = {at: why for at, payload in enumerate(payloads) if (why := _no_object(payload)) is not None}
        objects = [at for at in range(len(payloads)) if at not in bad]
        if not objects:
            return Parsed(_empty(self._known.schema), np.empty(0, np.int64), bad)
        lines = [_one_line(payloads[at]) for at in objects]
        ends = np.cumsum([len(line) for line in lines])
        cut = Cut(np.concatenate((np.zeros(1, np.int64), ends[:-1])), ends, int(ends[-1]))
        decoded = self._decoder.decode(b"".join(lines), cut)
        assert not isinstance(decoded, BadLine), "bad lines are skipped here"
        good = np.searchsorted(ends, decoded.ends)
        for at in set(range(len(lines))) - set(good.tolist()):
            bad[objects[at]] = JsonFormat().reason(lines[at], self._known.schema)
        return Parsed(decoded.batch, np.array(objects, np.int64)[good], bad)


class TextPayloads:
    """Payloads that are texts, without the newline at their end."""

    schema: Final = TextFormat.schema

    def parse(self, payloads: Sequence[bytes], now_us: int) -> Parsed:
        """Decode all texts at once."""
        texts = [payload.removesuffix(b"\n").removesuffix(b"\r") for payload in payloads]
        try:
            return _one_each(pa.array(texts, pa.binary()).cast(pa.string()), self.schema)
        except pa.ArrowInvalid:
            bad = {at: why for at, text in enumerate(texts) if (why := _no_text(text)) is not None}
        good = [at for at in range(len(texts)) if at not in bad]
        lines = pa.array([texts[at].decode() for at in good], pa.string())
        return Parsed(pa.RecordBatch.from_arrays([lines], schema=self.schema), np.array(good, np.int64), bad)


class BytePayloads:
    """Payloads of any bytes."""

    schema: Final = BYTES_SCHEMA

    def parse(self, payloads: Sequence[bytes], now_us: int) -> Parsed:
        """Return the payloads as they are."""
        return _one_each(pa.array(payloads, pa.binary()), self.schema)


class SenmlPayloads:
    """Payloads that are SenML packs."""

    schema: Final = senml.SCHEMA

    def parse(self, payloads: Sequence[bytes], now_us: int) -> Parsed:
        """Return a row for each record."""
        packs = senml.decode_packs(payloads, now_us)
        return Parsed(packs.batch, packs.origins, packs.bad)


def payloads_of(form: MessageFormat, known: KnownColumns) -> Payloads:
    """Return the parser of payloads of this form."""
    match form:
        case "json":
            return JsonPayloads(known)
        case "text":
            return TextPayloads()
        case "bytes":
            return BytePayloads()
        case "senml":
            return SenmlPayloads()


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The rows of the first `messages` messages, and how many of these were left out."""

    batch: pa.RecordBatch
    messages: int
    unparsable: int


class MessageReader:
    """Messages in, rows out, with columns for the topic and the retain flag."""

    def __init__(
        self, form: MessageFormat, known: KnownColumns, *, topic_column: str | None, retained_column: str | None
    ) -> None:
        self._payloads, self._known = payloads_of(form, known), known
        self._topic_column, self._retained_column = topic_column, retained_column
        self._rows_each = 1.0  # the recent number of rows per message

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the rows, as far as they are known."""
        inside = self._payloads.schema
        return None if inside is None else pa.schema([*inside, *self._extra_fields()])

    def remembered(self) -> dict[str, bytes]:
        """Return the part of a position with the inferred columns."""
        return self._known.remembered()

    def fitting(self, rows_max: int) -> int:
        """Return the number of messages that probably have so many rows."""
        return max(1, int(rows_max / self._rows_each))

    def read(self, messages: Sequence[MqttMessage], rows_max: int, now_us: int, *, skip_bad: bool) -> ReadRows:
        """Return the rows of the first messages: up to `rows_max`, but all of one message, and up to a bad one.

        A bad message that comes first is an error, unless they are skipped.
        """
        if not messages:
            return ReadRows(_empty(self.schema), 0, 0)
        parsed = self._parse(messages, now_us)
        if parsed.bad and not skip_bad:
            first = min(parsed.bad)
            if first == 0:
                raise ConnectorError(
                    f"a message on topic {quoted(messages[0].topic)} {parsed.bad[0]}; "
                    "correct the sender or the format, or pass bad_messages='skip'"
                )
            return self.read(messages[:first], rows_max, now_us, skip_bad=False)
        self._rows_each = max(1.0, parsed.batch.num_rows / len(messages))
        count = _messages_within(parsed.origins, len(messages), rows_max)
        rows = int(np.searchsorted(parsed.origins, count))
        batch = self._with_extras(parsed.batch.slice(0, rows), parsed.origins[:rows], messages)
        return ReadRows(batch, count, sum(at < count for at in parsed.bad))

    def _parse(self, messages: Sequence[MqttMessage], now_us: int) -> Parsed:
        spoilt = {at: one.problem for at, one in enumerate(messages) if one.problem is not None}
        if not spoilt:
            return self._payloads.parse([one.payload for one in messages], now_us)
        whole = np.array([at for at in range(len(messages)) if at not in spoilt], np.int64)
        parsed = self._payloads.parse([messages[at].payload for at in whole], now_us)
        bad = spoilt | {int(whole[at]): why for at, why in parsed.bad.items()}
        return Parsed(parsed.batch, whole[parsed.origins], bad)

    def _with_extras(self, batch: pa.RecordBatch, origins: Numbers, messages: Sequence[MqttMessage]) -> pa.RecordBatch:
        extras = self._extra_fields()
        for extra in extras:
            if extra.name in batch.schema.names:
                raise SchemaMismatch(
                    f"a message on topic {quoted(messages[0].topic)} has a field {quoted(extra.name)}, "
                    "the name of the column for its topic or its retained mark; give that column another name"
                )
        values = {
            self._topic_column: [messages[at].topic for at in origins],
            self._retained_column: [messages[at].retained for at in origins],
        }
        arrays = [pa.array(values[extra.name], extra.type) for extra in extras]
        schema = pa.schema([*batch.schema, *extras])
        return pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=schema) if extras else batch

    def _extra_fields(self) -> list[pa.Field]:
        topic = [] if self._topic_column is None else [pa.field(self._topic_column, pa.string())]
        retained = [] if self._retained_column is None else [pa.field(self._retained_column, pa.bool_())]
        return topic + retained


def _messages_within(origins: Numbers, messages: int, rows_max: int) -> int:
    """Return how many of the messages have at most so many rows in total, at least one message."""
    if len(origins) <= rows_max:
        return messages
    return max(1, int(origins[rows_max]))


def _one_each(values: pa.Array, schema: pa.Schema) -> Parsed:
    return Parsed(pa.RecordBatch.from_arrays([values], schema=schema), np.arange(len(values)))


def _empty(schema: pa.Schema | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=pa.schema([]) if schema is None else schema)


def _no_object(payload: bytes) -> str | None:
    try:
        value: Any = orjson.loads(payload)
    except orjson.JSONDecodeError as failure:
        return f"is not JSON: {failure}"
    return None if isinstance(value, dict) else f"is a JSON {type(value).__name__}, not an object"


def _one_line(payload: bytes) -> bytes:
    """Return valid JSON with newlines between its parts replaced, and one at its end."""
    return payload.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"


def _no_text(payload: bytes) -> str | None:
    try:
        payload.decode()
    except UnicodeDecodeError as failure:
        return f"is not UTF-8 text: byte 0x{payload[failure.start]:02x} at {failure.start}"
    return None
