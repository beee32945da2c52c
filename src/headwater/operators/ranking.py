"""The rows with the largest or smallest values of every key, as they are so far.

The ranking of a key is one entry: its rows, packed, best first. Those of all keys of a batch are decoded, ranked with
the new rows, and encoded together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.batch import schema_id
from headwater.model.errors import FlowError
from headwater.model.keys import keyed_rows
from headwater.operators.base import Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.chain import unite
from headwater.operators.columns.entry_names import EntryNames
from headwater.operators.columns.packing import Packing
from headwater.operators.columns.segments import Ints, cut, starts_of, sums_of
from headwater.operators.functions import WrongResult
from headwater.operators.state import OperatorState

RANK: Final = "rank"
RANKINGS: Final = 1

_HEADER: Final = np.dtype([("schema", "<u8"), ("rows", "<u8")])


@dataclass(frozen=True, kw_only=True)
class TopK(TimedOperator):
    """The running ranking of every key: its rows with the largest (or smallest) values, from rank 1.

    Whenever a batch changes the ranking of a key, all its rows come out anew. Equal values rank in order of arrival;
    NaN is larger than any number, and null comes last either way, as in Spark's `desc_nulls_last`.
    """

    kind: ClassVar[str] = "top_k"
    key_columns: tuple[str, ...]
    k: int
    by: str
    largest: bool = True

    def __post_init__(self) -> None:
        """Refuse an empty ranking."""
        if self.k < 1:
            raise FlowError(f"k={self.k} is no ranking; a top_k has at least one row")

    def open(self) -> TimedLogic:
        """Return the logic."""
        return TopKLogic(self)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Rows that were not among the first are gone."""
        return {"k": self.k, "by": self.by, "largest": self.largest}

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key and what the rows are ranked by."""
        return tuple(dict.fromkeys((*self.key_columns, self.by)))

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """The columns of the rows, and their rank."""
        return None if inputs[0] is None else pa.schema([*inputs[0], pa.field(RANK, pa.int64())])


class TopKLogic:
    """Runs a ranking."""

    def __init__(self, config: TopK) -> None:
        """Keep the configuration."""
        self._config = config
        self._names = EntryNames(RANKINGS)
        self._packings: dict[int, Packing] = {}

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Rank the rows among those before, and return the rankings that changed."""
        config, state = self._config, moment.state
        if RANK in batch.schema.names:
            raise WrongResult(f"the rows have a column {RANK!r}, which top_k adds itself; rename it before")
        keyed = keyed_rows(batch, config.key_columns)
        names = self._names.of(keyed.keys)
        before, of_key = self._read(state, state.read_many(names))
        rows = batch if before is None else unite([before, batch])
        keys = np.concatenate((of_key, keyed.codes))
        order = np.lexsort((*_ranking(rows.column(config.by), largest=config.largest), keys))
        counts = np.bincount(keys, minlength=len(names))
        rank = np.arange(len(order)) - np.repeat(starts_of(counts), counts)
        best = order[rank < config.k]
        changed = np.zeros(len(names), np.bool_)
        changed[keys[best[best >= len(of_key)]]] = True
        best = best[changed[keys[best]]]
        if not len(best):
            return (None,)
        ranked = rows.take(pa.array(best))
        sizes = np.bincount(keys[best], minlength=len(names))
        self._write(state, names, ranked, sizes)
        ranks = np.arange(len(best)) - np.repeat(starts_of(sizes), sizes) + 1
        return (ranked.append_column(RANK, pa.array(ranks)),)

    def advance(self, moment: Moment) -> Outputs:
        """Time brings nothing out."""
        return (None,)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

    def _read(self, state: OperatorState, values: Sequence[bytes | None]) -> tuple[pa.RecordBatch | None, Ints]:
        """Return the rankings so far, best first, and the key of each row."""
        there = [place for place, value in enumerate(values) if value is not None]
        if not there:
            return None, np.zeros(0, np.int64)
        found = [value for value in values if value is not None]
        header = np.frombuffer(b"".join([value[: _HEADER.itemsize] for value in found]), _HEADER)
        pieces, of_key = [], []
        for identity in np.unique(header["schema"]).tolist():
            packing = self._packing(state, identity)
            which = np.flatnonzero(header["schema"] == identity)
            rows = header["rows"][which].astype(np.int64)
            ends = (_HEADER.itemsize + rows * packing.record.itemsize).tolist()
            some = [(found[place], end) for place, end in zip(which.tolist(), ends, strict=True)]
            records = np.frombuffer(b"".join([value[_HEADER.itemsize : end] for value, end in some]), packing.record)
            heap = b"".join([value[end:] for value, end in some]) if packing.has_heap else b""
            pieces.append(packing.unpack(records, heap))
            of_key.append(np.repeat(np.array(there)[which], rows))
        keys = np.concatenate(of_key)
        return unite(pieces), keys

    def _write(self, state: OperatorState, names: list[bytes], rows: pa.RecordBatch, counts: Ints) -> None:
        """Keep rankings; a key without rows keeps what it has."""
        identity = schema_id(rows.schema)
        if identity not in self._packings:
            self._packings[identity] = Packing(rows.schema)
        state.share(_shared_name(identity), rows.schema.serialize().to_pybytes())
        packed = self._packings[identity].pack(rows)
        header = np.zeros(len(counts), _HEADER)
        header["schema"], header["rows"] = identity, counts
        pieces = [
            cut(header.tobytes(), np.full(len(counts), _HEADER.itemsize)),
            cut(packed.records.tobytes(), counts * packed.records.itemsize),
            cut(packed.heap, sums_of(packed.heap_sizes, counts)),
        ]
        values = list(map(b"".join, zip(*pieces, strict=True)))
        changed = np.flatnonzero(counts).tolist()
        state.put_many([names[place] for place in changed], [values[place] for place in changed])

    def _packing(self, state: OperatorState, identity: int) -> Packing:
        packing = self._packings.get(identity)
        if packing is None:
            encoded = state.shared(_shared_name(identity))
            assert encoded is not None, f"{_shared_name(identity)} of a ranking is not in the state"
            packing = self._packings[identity] = Packing(pa.ipc.read_schema(pa.py_buffer(encoded)))
        return packing


def _shared_name(identity: int) -> str:
    return f"schema {identity:016x}"


def _ranking(column: pa.Array, *, largest: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return what puts rows in order of a column, for `np.lexsort`, which keeps the order of equal ones."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_boolean(plain.type) or pa.types.is_null(plain.type):
        plain = plain.cast(pa.uint8())
    ranks = pc.rank(plain, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    if pa.types.is_floating(plain.type):
        is_nan = pc.is_nan(plain).fill_null(False).to_numpy(zero_copy_only=False)
        ranks[is_nan] = len(ranks) + 1
    return -ranks if largest else ranks, is_null
