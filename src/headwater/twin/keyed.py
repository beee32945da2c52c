"""Operators with state per key that Spark has no counterpart for: their own logic, inside transformWithState.

`transformWithStateInPandas` calls a processor with the rows of one key at a time, as DataFrames, in which a null and a
NaN, or a large number beside a null, cannot be distinguished. So the rows of a key travel as Arrow bytes: a step before
packs them with the bytes of their key, the processor runs the operator on them with the key's state, and a step after
unpacks the result. A function that takes batches sees one key at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.model.batch import decode_batch, encode_batch, needs_whole
from headwater.model.keys import encode_key, keyed_rows
from headwater.operators.chain import unite
from headwater.twin.columns import conformed, spark_form, struct_of
from headwater.twin.stateless import Chained
from headwater.twin.streams import TwinStream

_PACKED: Final = pa.schema([("key", pa.binary()), ("place", pa.int64()), ("rows", pa.binary())])
_MADE: Final = pa.schema([("rows", pa.binary())])
_PLACES: Final = 1 << 32  # rows of a partition, far more than fit into a micro-batch
_ENTRIES: Final = msgspec.msgpack.Decoder(dict[bytes, bytes])


def per_key(rows: TwinStream, key: tuple[str, ...], chained: Chained) -> TwinStream:
    """Return the result of an operator for the rows of each key."""
    packed = rows.mapped(_Pack(rows.schema, key, chained), _PACKED, "packed rows")
    made = packed.frame.groupBy("key").transformWithStateInPandas(
        _KeyedProcessor(chained), struct_of(_MADE), "Append", "None"
    )
    return TwinStream(made, _MADE).mapped(_Unpack(chained), chained.made, chained.operators[-1].name)


@dataclass(frozen=True)
class _Pack:
    """Gathers the rows of each key of a batch."""

    schema: pa.Schema
    key: tuple[str, ...]
    chained: Chained

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return a row for each key of each batch, numbered in order of arrival."""
        whole = needs_whole(self.schema)
        place = _partition() * _PLACES
        with self.chained.trouble.watching():
            for batch in batches:
                own = conformed(batch, self.schema)
                found = keyed_rows(own, self.key)
                order = np.argsort(found.codes, kind="stable")
                ends = np.cumsum(np.bincount(found.codes, minlength=len(found.keys)))
                pieces = [own.take(pa.array(one)) for one in np.split(order, ends[:-1])]
                columns = [
                    pa.array([encode_key(key) for key in found.keys], pa.binary()),
                    pa.array(range(place, place + len(pieces)), pa.int64()),
                    pa.array([encode_batch(piece, whole=whole) for piece in pieces], pa.binary()),
                ]
                place += len(pieces)
                yield pa.RecordBatch.from_arrays(columns, schema=_PACKED)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


class _KeyedProcessor(StatefulProcessor):
    """Runs an operator on the rows of one key."""

    def __init__(self, chained: Chained) -> None:
        self._chained = chained

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("kept", "entries binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        chained = self._chained
        with chained.trouble.watching():
            kept = self._read()
            result = chained.run(self._united(rows), kept)
            self._write(kept, result.state.get(0, {}))
            made = chained.outlet(result)
        if made is not None:
            yield pd.DataFrame({"rows": [encode_batch(made, whole=needs_whole(chained.made))]})

    def close(self) -> None:
        pass

    def _united(self, rows: Iterator[pd.DataFrame]) -> pa.RecordBatch:
        given = self._chained.given
        pieces = [one for frame in rows for one in zip(frame["place"], frame["rows"], strict=True)]
        whole = needs_whole(given)
        return unite([decode_batch(packed, given, whole=whole) for _, packed in sorted(pieces)])

    def _read(self) -> dict[bytes, bytes]:
        kept = self._kept.get()
        return {} if kept is None else _ENTRIES.decode(kept[0])

    def _write(self, kept: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> None:
        if not changes:
            return
        entries = {name: value for name, value in {**kept, **changes}.items() if value is not None}
        if entries:
            self._kept.update((msgspec.msgpack.encode(entries),))
        elif kept:
            self._kept.clear()


@dataclass(frozen=True)
class _Unpack:
    """Unpacks rows."""

    chained: Chained

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.chained.made
        form, whole = spark_form(schema, self.chained.operators[-1].name), needs_whole(schema)
        for batch in batches:
            for packed in batch.column(0).to_pylist():
                yield conformed(decode_batch(packed, schema, whole=whole), form)
