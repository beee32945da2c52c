"""What the joins of two streams have in common: their settings, and the columns they yield.

The columns that come out are the key under the names it has on the left, then the other columns of the left rows, then
those of the right rows; a name that is there already gets the suffix. Where rows of one side have no partner, the
columns of the other side are null, and the key is the row's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.errors import FlowError
from headwater.model.keys import decode_key
from headwater.operators.base import TimedOperator
from headwater.operators.functions import WrongResult

JoinKind = Literal["inner", "left", "full"]
LEFT: Final = 0
RIGHT: Final = 1
SIDES: Final = ("left", "right")
WINDOW: Final = "window"
WIDER: Final = "permissive"  # where types differ between batches or sides, the one that holds both

Schemas = tuple[pa.Schema | None, pa.Schema | None]
Rows = npt.NDArray[np.int64]
Sides = tuple[pa.RecordBatch | None, pa.RecordBatch | None]  # rows of the left and of the right, each with its partner


@dataclass(frozen=True, kw_only=True)
class StreamJoin(TimedOperator):
    """Pairs rows of two inputs that have equal keys and belong together in time.

    Pairs come out at once. A row of an outer side that can have no partner any more comes out alone. Null is equal to
    nothing, as in SQL, so a row with a null in its key is alone from the start; NaN is equal to NaN, as in Spark.
    """

    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    left_time: str
    right_time: str
    how: JoinKind = "inner"
    suffix: str = "_right"
    schemas: Schemas = (None, None)  # the inputs' columns where they are known before the first row

    def __post_init__(self) -> None:
        """Refuse what is no join."""
        if not self.left_key or len(self.left_key) != len(self.right_key):
            raise FlowError(
                f"a join needs the same number of key columns on both sides, at least one: "
                f"not {self.left_key} and {self.right_key}"
            )
        if self.how not in ("inner", "left", "full"):
            raise FlowError(f"how={self.how!r} is unknown; a join is 'inner', 'left' or 'full'")
        if not self.suffix:
            raise FlowError("a join needs a suffix for columns that both sides have")

    @property
    def inputs(self) -> int:
        """Left is the first."""
        return 2

    @property
    def ports(self) -> tuple[str, ...]:
        """What is joined, and the rows of either input that came too late."""
        return ("out", "late", "late_right")

    @property
    def key(self) -> tuple[str, ...]:
        """The key as the left side calls it."""
        return self.left_key

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Rows wait by the time of their side, and those of an outer side are marked when they have had a partner."""
        return {
            "right_key": self.right_key,
            "left_time": self.left_time,
            "right_time": self.right_time,
            "how": self.how,
        }

    @property
    def needs_watermark(self) -> bool:
        """Without a watermark no row can ever be known to stay alone."""
        return self.how != "inner"

    def key_of(self, source: int) -> tuple[str, ...]:
        """The key as one side calls it."""
        return (self.left_key, self.right_key)[source]

    def time_of(self, source: int) -> str:
        """The event time of one side."""
        return (self.left_time, self.right_time)[source]

    def columns_needed_of(self, source: int) -> tuple[str, ...]:
        """The key and the event time of that side."""
        return tuple(dict.fromkeys((*self.key_of(source), self.time_of(source))))

    def is_outer(self, source: int) -> bool:
        """Whether rows of this side come out though they have no partner."""
        return self.how == "full" or (self.how == "left" and source == LEFT)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns if those of both sides are known."""
        left, right = inputs
        return None if left is None or right is None else JoinColumns(self, (left, right)).schema

    def port_schema(self, port: str, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Late rows leave as they came."""
        return {"late": inputs[LEFT], "late_right": inputs[RIGHT]}.get(port, self.output_schema(inputs))

    def leading_fields(self, schemas: Schemas) -> list[pa.Field]:
        """The columns in front of the key."""
        return []


class SideColumns:
    """What is kept of the rows of one side while they wait: all but what the name of their entry gives back."""

    def __init__(self, schema: pa.Schema, key: tuple[str, ...], time: str) -> None:
        """Put the event time first: it can be read without unpacking a row."""
        self.schema = schema
        self.key = key
        self.time = time
        named = {name for name in key if is_exact_key(schema.field(name).type)} - {time}
        kept = [field for field in schema if field.name != time and field.name not in named]
        self.stored = pa.schema([schema.field(time), *kept])

    def with_keys(self, rows: pa.RecordBatch, keys: Sequence[bytes], counts: Rows) -> pa.RecordBatch:
        """Return waiting rows, so many of each key, with the parts of the key that are not kept with them."""
        lacking = [(place, name) for place, name in enumerate(self.key) if name not in self.stored.names]
        if not lacking:
            return rows
        decoded = [decode_key(key) for key in keys]
        of_row = pa.array(np.repeat(np.arange(len(keys)), counts))
        for place, name in lacking:
            values = [key[place] for key in decoded] if len(self.key) > 1 else decoded
            rows = rows.append_column(name, pa.array(values, self.schema.field(name).type).take(of_row))
        return rows


def is_exact_key(kind: pa.DataType) -> bool:
    """Whether the bytes of a key give back just the value that the row had; 1.0 and -0.0 come back as 1 and 0."""
    of_time = getattr(kind, "unit", "us") != "ns" and (pa.types.is_date(kind) or pa.types.is_timestamp(kind))
    return of_time or pa.types.is_integer(kind) or kind in _EXACT


_EXACT: Final = frozenset({pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.bool_()})


class JoinColumns:
    """The columns that come out, for given columns on both sides; one side may not be known yet."""

    def __init__(self, config: StreamJoin, schemas: Schemas) -> None:
        """Name the columns and find the types of the key."""
        self.schemas = schemas
        self._keys = (config.left_key, config.right_key)
        fields = [*config.leading_fields(schemas), *_key_fields(config, schemas)]
        taken = {field.name for field in fields}
        self._rest: list[tuple[int, str]] = []
        for source, schema in enumerate(schemas):
            for field in schema or ():
                if field.name not in config.key_of(source):
                    name = free_name(field.name, config.suffix, taken)
                    self._rest.append((source, field.name))
                    fields.append(pa.field(name, field.type))
        self.schema = pa.schema(fields)

    def joined(self, leading: Sequence[pa.Array], sides: Sides) -> pa.RecordBatch:
        """Return rows of both sides beside one another, or of one side alone, behind the columns that lead."""
        count = next(rows.num_rows for rows in sides if rows is not None)
        fields = self.schema.field
        columns = [*leading]
        for place in range(len(self._keys[LEFT])):
            column, kind = self._key_column(place, sides), fields(len(columns)).type
            columns.append(column if column.type == kind else column.cast(kind))
        for source, name in self._rest:
            rows = sides[source]
            columns.append(pa.nulls(count, fields(len(columns)).type) if rows is None else rows.column(name))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _key_column(self, place: int, sides: Sides) -> pa.Array:
        """Return a part of the key: the left row's, or the right one's if there is no left row or it is not at hand."""
        for source, rows in enumerate(sides):
            name = self._keys[source][place]
            if rows is not None and name in rows.schema.names:
                return rows.column(name)
        raise AssertionError("a key is not among the columns of its row")


def free_name(name: str, suffix: str, taken: set[str]) -> str:
    while name in taken:
        name += suffix
    taken.add(name)
    return name


def _key_fields(config: StreamJoin, schemas: Schemas) -> list[pa.Field]:
    fields = []
    for names in zip(config.left_key, config.right_key, strict=True):
        kinds = [schema.field(name).type for name, schema in zip(names, schemas, strict=True) if schema is not None]
        fields.append(pa.field(names[LEFT], common_kind(names, kinds)))
    return fields


def common_kind(names: tuple[str, str], kinds: list[pa.DataType]) -> pa.DataType:
    """Return the type that holds the keys of both sides."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if all(pa.types.is_timestamp(kind) and kind.tz for kind in kinds):  # one instant is one key in every zone
        kinds = [pa.timestamp(kind.unit, kinds[0].tz) for kind in kinds]
    try:
        unified = pa.unify_schemas([pa.schema([("key", kind)]) for kind in kinds], promote_options=WIDER)
    except pa.ArrowException:
        raise WrongResult(
            f"the left key {names[LEFT]!r} is {kinds[LEFT]} and the right key {names[RIGHT]!r} is {kinds[RIGHT]}: "
            "they can never be equal; cast one of them before the join"
        ) from None
    return unified.field("key").type


def lacks_key(batch: pa.RecordBatch, key: Sequence[str]) -> npt.NDArray[np.bool_] | None:
    """Return which rows have a null in their key; None if none has."""
    columns = [column for name in key if (column := batch.column(name)).null_count]
    if not columns:
        return None
    missing: npt.NDArray[np.bool_] = np.zeros(batch.num_rows, np.bool_)
    for column in columns:
        missing |= column.is_null().to_numpy(zero_copy_only=False)
    return missing
