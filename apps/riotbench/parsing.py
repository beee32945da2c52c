"""From RIoTBench's lines to columns: one row for each message, or one for each of its observations.

A line's JSON is decoded into typed records, never into whatever it happens to contain. What is no message of the data
set raises, so that an operator with `on_error="dead-letter"` sets it aside; a value that is absent, `null` or no finite
number is null.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .datasets import MESSAGE_ID, TIMESTAMP, Dataset, Field

SENSOR: Final = "sensor"
OBSERVABLE: Final = "obs"
VALUE: Final = "value"  # of an observation that is a number,
TEXT: Final = "text"  # and of one that is not

_ABSENT: Final = (None, "", "null")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")  # int() would also take 1_000, blanks and the digits of any script
_INT64: Final = 1 << 63


class BadMessage(ValueError):
    """A line is not a message of the data set; the text says why."""


class _Entry(msgspec.Struct, gc=False):
    n: str
    v: str | float | None = None
    sv: str | None = None


class _Message(msgspec.Struct, gc=False):
    e: list[_Entry]
    bt: int | str  # FIT writes it as a text
    bn: str = ""


@cache  # not made with the module, which travels to workers: a decoder cannot
def _decoder() -> "msgspec.json.Decoder[_Message]":
    return msgspec.json.Decoder(_Message)


@dataclass(frozen=True)
class Parse:
    """Makes one row of each line, with the columns of `dataset.schema`."""

    dataset: Dataset

    def __call__(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Parse a batch of lines; raises BadMessage if one of them is none."""
        texts = lines["line"].to_pylist()
        messages = [_decoded(text) for text in texts]
        entries = [field for field in self.dataset.fields if field.name != TIMESTAMP]
        names = [field.name for field in entries]
        columns = dict(zip(entries, zip(*(_values(message, names) for message in messages), strict=True), strict=True))
        arrays = {
            MESSAGE_ID: pa.array(_hashes(texts)),
            TIMESTAMP: pa.array([_base_time(message) for message in messages], pa.int64()),
            **{field.name: _texts(values) for field, values in columns.items() if field.kind == "sv"},
            **_numbers({field: values for field, values in columns.items() if field.kind == "v"}, len(messages)),
        }
        if arrays[self.dataset.id_field].null_count:
            raise BadMessage(f"a message has no {self.dataset.id_field}")
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self.dataset.schema.names], schema=self.dataset.schema
        )


@dataclass(frozen=True)
class ParseObservations:
    """Makes a row of each observation: the message's id, who sent it, its meta fields, which observable, what value."""

    dataset: Dataset
    observables: tuple[str, ...]
    absent: bool = True  # whether there is a row for a value that is absent

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row."""
        fields = [(MESSAGE_ID, pa.int64()), (SENSOR, pa.string())]
        fields += [(name, self.dataset.field(name).type) for name in self.dataset.meta]
        return pa.schema([*fields, (OBSERVABLE, pa.string()), (VALUE, pa.float64()), (TEXT, pa.string())])

    def __call__(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Parse a batch of lines; observations come message by message, in the order of `observables`."""
        observations = self.taken_apart(Parse(self.dataset)(lines))
        if self.absent or observations[VALUE].null_count == 0:
            return observations
        return observations.filter(pc.is_valid(observations[VALUE]))

    def taken_apart(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each observation of these messages."""
        rows, times = messages.num_rows, len(self.observables)
        each = pa.array(np.repeat(np.arange(rows), times))
        along = [messages[name].take(each) for name in (MESSAGE_ID, self.dataset.id_field, *self.dataset.meta)]
        names = pa.array(self.observables).take(pa.array(np.tile(np.arange(times), rows)))
        fields = [self.dataset.field(name) for name in self.observables]
        values = _interleaved(messages, fields, "v", pa.float64())
        texts = _interleaved(messages, fields, "sv", pa.string())
        return pa.RecordBatch.from_arrays([*along, names, values, texts], schema=self.schema)


def _decoded(line: str) -> _Message:
    """Return the message of a line, with or without a time before it."""
    payload = line if line.startswith("{") else line.partition(",")[2]
    try:
        return _decoder().decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:  # the latter of brackets in brackets in brackets
        raise BadMessage(f"{error}: {line[:200]!r}") from error


def _base_time(message: _Message) -> int:
    written = message.bt
    if isinstance(written, int) or _WHOLE.fullmatch(written):
        time_ms = int(written)
        if -_INT64 <= time_ms < _INT64:
            return time_ms
    raise BadMessage(f"the base time {_shown(written)} is not a number of milliseconds")


def _values(message: _Message, names: list[str]) -> Sequence[str | float | None]:
    """Return the value of each field; nearly always a message's entries are these fields, in this order."""
    if not message.bn and [entry.n for entry in message.e] == names:
        return [entry.sv if entry.v is None else entry.v for entry in message.e]
    by_name = {message.bn + entry.n: entry.sv if entry.v is None else entry.v for entry in message.e}
    return [by_name.get(name) for name in names]


def _texts(values: Sequence[str | float | None]) -> pa.Array:
    return pa.array([None if value in _ABSENT else str(value) for value in values], pa.string())


def _numbers(columns: Mapping[Field, Sequence[str | float | None]], rows: int) -> dict[str, pa.Array]:
    """Return the columns of all numbers; they are read together, since of a few rows each costs as much as all."""
    try:
        together = pa.array([value for values in columns.values() for value in values]).cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # not all of them are numbers, or are written in one way
        together = pa.concat_arrays([_read_apart(field, values) for field, values in columns.items()])
    together = pc.if_else(pc.is_finite(together), together, None)
    return {field.name: together.slice(nth * rows, rows) for nth, field in enumerate(columns)}


def _read_apart(field: Field, values: Sequence[str | float | None]) -> pa.Array:
    try:
        return pa.array(values).cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_number(field, value) for value in values], pa.float64())


def _number(field: Field, value: str | float | None) -> float | None:
    """Return the number, or None for none; as for Java, 1_000 is no number, nor are digits of other scripts."""
    if value is None or value in _ABSENT:
        return None
    try:
        if isinstance(value, float) or (value.isascii() and "_" not in value):
            return float(value)
    except ValueError:
        pass
    raise BadMessage(f"{field.name} is not a number but {_shown(value)}")


def _shown(value: str | float) -> str:
    return repr(str(value)[:50])


def _hashes(lines: list[str]) -> npt.NDArray[np.int64]:
    """Return an id for each message, the same wherever it is parsed: equal lines share one."""
    hashes: npt.NDArray[np.uint64] = pd.util.hash_array(np.array(lines, dtype=object), categorize=False)
    return hashes.view(np.int64)


def _interleaved(messages: pa.RecordBatch, fields: Sequence[Field], kind: str, type_: pa.DataType) -> pa.Array:
    """Return one column with the first field's value of each message, the second's and so on; null for other kinds."""
    chosen = [messages[field.name] if field.kind == kind else pa.nulls(messages.num_rows, type_) for field in fields]
    order = np.arange(len(fields) * messages.num_rows).reshape(len(fields), -1).T.ravel()
    return pa.concat_arrays(chosen).take(pa.array(order))
