"""Which columns the rows that wait in a join have, and how they are packed.

Columns may widen while a flow runs. Every layout is shared under a hash of it, so rows of any age can be read, also
after they have come from another instance.
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.columns.packing import Packing, Records
from headwater.operators.columns.segments import Ints
from headwater.operators.functions import WrongResult
from headwater.operators.joins.joining import LEFT, RIGHT, SIDES, WIDER, JoinColumns, Schemas, SideColumns, StreamJoin
from headwater.operators.state import OperatorState

HEADER: Final = 0xFF  # in the place of a side: this is no row
HEADER_BYTES: Final = 24
_HEADER: Final = np.dtype(
    {
        "names": ["side", "rows", "layout", "own"],
        "formats": ["u1", "u4", "i8", "i8"],
        "offsets": [0, 4, 8, 16],
        "itemsize": HEADER_BYTES,
    }
)
_ANY: Final = np.dtype(f"V{HEADER_BYTES}")
_MARKS: Final = ("side", "flag")
_UNITS: Final = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}  # microseconds for so many
_CURRENT: Final = "layout"


class JoinLayout:
    """The columns of both sides at one time. All rows, and the header of a head, have the same length in bytes."""

    def __init__(self, config: StreamJoin, schemas: Schemas) -> None:
        """Work out what is kept and what comes out."""
        self.schemas = schemas
        self._columns = None if schemas == (None, None) else JoinColumns(config, schemas)
        self.encoded = msgspec.msgpack.encode(
            [None if schema is None else schema.serialize().to_pybytes() for schema in schemas]
        )
        digest = blake2b(self.encoded, digest_size=8).digest()
        self.identity = int.from_bytes(digest, "little", signed=True)
        self._sides = [
            None if schema is None else SideColumns(schema, config.key_of(source), config.time_of(source))
            for source, schema in enumerate(schemas)
        ]
        kept = [pa.schema([]) if side is None else side.stored for side in self._sides]
        self.row_bytes = max(HEADER_BYTES, *(Packing(stored, _MARKS).record.itemsize for stored in kept))
        self.packings = [Packing(stored, _MARKS, self.row_bytes) for stored in kept]
        self.has_heap = any(packing.has_heap for packing in self.packings)
        self._marks = np.dtype(
            {"names": _MARKS, "formats": ["u1", "u1"], "offsets": [0, 1], "itemsize": self.row_bytes}
        )
        self._record = np.dtype(f"V{self.row_bytes}")
        self.no_rows = self.headers(np.zeros(1, np.int64), np.zeros(1, np.int64))

    def headers(self, rows: Ints, own: Ints) -> bytes:
        """Return the headers of heads that have so many rows."""
        headers = np.zeros(len(rows), self._record)
        fields = headers.view(np.uint8).reshape(len(rows), self.row_bytes)[:, :HEADER_BYTES].view(_HEADER)[:, 0]
        fields["side"], fields["rows"], fields["layout"], fields["own"] = HEADER, rows, self.identity, own
        return headers.tobytes()

    @property
    def columns(self) -> JoinColumns:
        """The columns that come out; those of a side that has not shown any row yet are missing."""
        assert self._columns is not None, "no row has come yet"
        return self._columns

    def records(self, joined: bytes | bytearray) -> Records:
        """Return what lies in bytes one behind the other."""
        return np.frombuffer(joined, self._record)

    def sides(self, rows: Records) -> npt.NDArray[np.uint8]:
        """The side of every row, to be read or changed."""
        return rows.view(self._marks)["side"]

    def flags(self, rows: Records) -> npt.NDArray[np.uint8]:
        """The flag of every row, to be read or changed."""
        return rows.view(self._marks)["flag"]

    def times_us(self, rows: Records) -> Ints:
        """The event times of rows, of which every side has its own unit."""
        known = [source for source in (LEFT, RIGHT) if self._sides[source] is not None]
        places = {self._time_of(source) for source in known}
        if len(places) == 1:
            return self._read_times(rows, *places.pop())
        times = np.empty(len(rows), np.int64)
        for source in known:
            of_side = self.sides(rows) == source
            times[of_side] = self._read_times(rows[of_side], *self._time_of(source))
        return times

    def _time_of(self, source: int) -> tuple[int, str]:
        """Where in a row of this side the event time is, and in which unit."""
        packing = self.packings[source]
        assert packing.record.fields is not None
        return packing.record.fields["0"][1], packing.schema.field(0).type.unit

    def _read_times(self, rows: Records, offset: int, unit: str) -> Ints:
        field = np.dtype({"names": ["time"], "formats": ["i8"], "offsets": [offset], "itemsize": self.row_bytes})
        times: Ints = np.ascontiguousarray(rows.view(field)["time"])
        per_unit, units = _UNITS[unit]
        return times if unit == "us" else times * per_unit // units

    def side(self, source: int) -> SideColumns:
        """The columns of a side whose rows have been seen."""
        side = self._sides[source]
        assert side is not None, f"no {SIDES[source]} row has come yet"
        return side


def header_fields(joined: bytes | bytearray, starts: Ints) -> npt.NDArray[Any]:
    """Return the headers that begin at these places, whatever the layouts are."""
    anywhere: npt.NDArray[Any] = np.ndarray(max(0, len(joined) - HEADER_BYTES + 1), _ANY, joined, strides=(1,))
    return anywhere[starts].view(_HEADER)


class Layouts:
    """The layouts that a join has met. A cache: all of them are in the state."""

    def __init__(self, config: StreamJoin) -> None:
        """Know none."""
        self._config = config
        self._known: dict[int, JoinLayout] = {}

    def current(self, state: OperatorState) -> JoinLayout:
        """Return the layout of today."""
        identity = state.shared(_CURRENT)
        return self._of(self._config.schemas) if identity is None else self.find(state, _number(identity))

    def find(self, state: OperatorState, identity: int) -> JoinLayout:
        """Return the layout that has this name."""
        layout = self._known.get(identity)
        if layout is None:
            encoded = state.shared(_shared_name(identity))
            assert encoded is not None, f"layout {_shared_name(identity)} of waiting rows is not in the state"
            left, right = [
                None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
                for schema in msgspec.msgpack.decode(encoded)
            ]
            layout = self._of((left, right))
        return layout

    def taking(self, state: OperatorState, source: int, schema: pa.Schema) -> JoinLayout:
        """Return the layout that holds these rows too; it is the layout of today from now on."""
        identity = state.shared(_CURRENT)
        if identity is None:
            layout = self._of(self._config.schemas)
        else:
            layout = self.find(state, _number(identity))
            before = layout.schemas[source]
            if before is not None and before.equals(schema):
                return layout
        return self._widened(state, layout, (schema, None) if source == LEFT else (None, schema))

    def covering(self, state: OperatorState, layout: JoinLayout, identity: int) -> JoinLayout:
        """Return the layout that holds the rows of another one too."""
        return self._widened(state, layout, self.find(state, identity).schemas)

    def _widened(self, state: OperatorState, layout: JoinLayout, by: Schemas) -> JoinLayout:
        left, right = [_wider(SIDES[source], layout.schemas[source], by[source]) for source in (LEFT, RIGHT)]
        wider = self._of((left, right))
        state.share(_shared_name(wider.identity), wider.encoded)
        state.share(_CURRENT, wider.identity.to_bytes(8, "little", signed=True))
        return wider

    def _of(self, schemas: Schemas) -> JoinLayout:
        layout = JoinLayout(self._config, schemas)
        return self._known.setdefault(layout.identity, layout)


def _number(identity: bytes) -> int:
    return int.from_bytes(identity, "little", signed=True)


def _shared_name(identity: int) -> str:
    return f"{_CURRENT} {identity & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def _wider(side: str, known: pa.Schema | None, by: pa.Schema | None) -> pa.Schema | None:
    if known is None or by is None:
        found = by if known is None else known
        return None if found is None else found.remove_metadata()
    if known.equals(by):
        return known
    try:
        return pa.unify_schemas([known, by], promote_options=WIDER).remove_metadata()
    except pa.ArrowException as failure:
        raise WrongResult(f"rows of the {side} side do not fit those before them: {failure}") from None


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in a wider schema; a column that they lack is null."""
    if batch.schema.equals(schema):
        return batch
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
