"""SenML (RFC 8428), the way many sensors write measurements, as rows: `decode` in a flow, `encode` at its end.

    import headwater as hw

    rows = hw.read.text("packs.txt").flat_map(hw.senml.decode)

A row is one measurement with all base fields resolved: `name`, `unit`, `time`, one of `value`, `string_value`,
`bool_value` and `data_value`, and perhaps `sum` and `update_time` (in seconds).
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from headwater.connectors.senml_packs import SenmlError, SenmlRecord, resolved, written
from headwater.model.quoting import brief, cause, listed, quoted

SCHEMA: Final = pa.schema(
    [
        ("name", pa.string()),
        ("unit", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("value", pa.float64()),
        ("string_value", pa.string()),
        ("bool_value", pa.bool_()),
        ("data_value", pa.binary()),
        ("sum", pa.float64()),
        ("update_time", pa.float64()),
    ]
)

__all__ = ["SCHEMA", "SenmlError", "decode", "encode", "encode_rows"]


@dataclass(frozen=True, slots=True)
class Packs:
    """The measurements of several packs, the number of the pack of each, and the invalid packs."""

    batch: pa.RecordBatch
    origins: npt.NDArray[np.int64]
    bad: dict[int, str]


def decode(
    batch: pa.RecordBatch, column: str = "line", *, now: datetime.datetime | str | None = None
) -> pa.RecordBatch:
    """Return a row for each measurement in the packs of a column of texts; for `flat_map`.

    The other columns are repeated for each of them. `now` is the start of relative times: an instant, or the name of a
    column with the time of arrival. Raises if a text is not a pack: with `on_error="dead-letter"` the flow continues
    without it.
    """
    if column not in batch.schema.names:
        raise SenmlError(f"there is no column {quoted(column)}, only: {listed(batch.schema.names)}")
    others = [name for name in batch.schema.names if name != column]
    taken = [name for name in others if name in SCHEMA.names]
    if taken:
        raise SenmlError(f"column {quoted(taken[0])} has the name of a SenML column; rename it with select(...) first")
    instants = _instants(batch, now)
    found: list[SenmlRecord] = []
    origins: list[int] = []
    for at, text in enumerate(batch.column(column).to_pylist()):
        try:
            records = resolved("null" if text is None else text, instants[at])
        except SenmlError as failure:
            raise SenmlError(f"the text in column {quoted(column)} {failure}") from None
        found += records
        origins += [at] * len(records)
    return _repeated(batch.select(others), origins, _table(found))


def encode(batch: pa.RecordBatch) -> bytes:
    """Return the rows as one pack, in their order."""
    return orjson.dumps([written(record) for record in _records(batch)])


def encode_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as a pack of its own."""
    return [orjson.dumps([written(record)]) for record in _records(batch)]


def decode_packs(packs: Sequence[bytes], now_us: int) -> Packs:
    """Return the measurements of all texts that are packs, and why the others are none."""
    found: list[SenmlRecord] = []
    origins: list[int] = []
    bad: dict[int, str] = {}
    for at, pack in enumerate(packs):
        try:
            records = resolved(pack, now_us)
        except SenmlError as failure:
            bad[at] = str(failure)
            continue
        found += records
        origins += [at] * len(records)
    return Packs(_table(found), np.array(origins, np.int64), bad)


def _table(records: Sequence[SenmlRecord]) -> pa.RecordBatch:
    columns = list(zip(*records, strict=True)) if records else [()] * len(SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _repeated(others: pa.RecordBatch, origins: list[int], measured: pa.RecordBatch) -> pa.RecordBatch:
    if not others.num_columns:
        return measured
    repeated = others.take(pa.array(origins, pa.int64()))
    schema = pa.schema([*others.schema, *SCHEMA])
    return pa.RecordBatch.from_arrays([*repeated.columns, *measured.columns], schema=schema)


def _instants(batch: pa.RecordBatch, now: datetime.datetime | str | None) -> Sequence[int | None]:
    if isinstance(now, str):
        if now not in batch.schema.names:
            raise SenmlError(f"now={quoted(now)} is no column, there are only: {listed(batch.schema.names)}")
        if not pa.types.is_timestamp(batch.schema.field(now).type):
            raise SenmlError(f"now={quoted(now)} is {brief(batch.schema.field(now).type)}, not a timestamp")
        return _epoch_us(batch.column(now))
    if now is not None and now.tzinfo is None:
        raise SenmlError("now= has no time zone; give one, such as datetime.UTC")
    instant = None if now is None else round(now.timestamp() * 1_000_000)
    return [instant] * batch.num_rows


def _epoch_us(column: pa.Array) -> list[int | None]:
    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _records(batch: pa.RecordBatch) -> list[SenmlRecord]:
    """Return the rows as records; other columns are ignored, and missing ones are null."""
    names = batch.schema.names
    for needed in ("name", "time"):
        if needed not in names:
            raise SenmlError(f"there is no column {quoted(needed)} to write as SenML, only: {listed(names)}")
    columns = [_values(batch, field) for field in SCHEMA]
    for required in (0, 2):
        if None in columns[required]:
            raise SenmlError(f"column {quoted(SCHEMA.field(required).name)} is null in a row; SenML needs it")
    return [SenmlRecord(*row) for row in zip(*columns, strict=True)]


def _values(batch: pa.RecordBatch, field: pa.Field) -> list[Any]:
    if field.name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(field.name)
    try:
        if pa.types.is_timestamp(field.type):
            if not pa.types.is_timestamp(column.type):
                raise pa.ArrowInvalid("it is not a timestamp")
            return _epoch_us(column)
        return column.cast(field.type).to_pylist()  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise SenmlError(
            f"column {quoted(field.name)} is {brief(column.type)}, not {field.type}: {cause(failure)}"
        ) from failure
