"""Enriching a stream: every row gets the columns that a table has for its key.

A worker loads the table when the first rows come and remembers it, by key, until it is time to ask for it again. Each
worker does so for itself, so for a moment after a change two of them may know different rows.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.errors import FlowError
from headwater.model.keys import encode_key, keyed_rows
from headwater.operators.base import Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.columns.segments import Ints, places, starts_of
from headwater.operators.functions import WrongResult, table_to_batch
from headwater.operators.joins.joining import common_kind, free_name, lacks_key
from headwater.operators.tables import TableSpec

log = logging.getLogger(__name__)

EnrichKind = Literal["inner", "left"]

_KEYS_MAX: Final = 200_000  # keys of rows that are remembered together with where they are in the table
_NOWHERE: Final = -1


@dataclass(frozen=True, kw_only=True)
class Enrich(TimedOperator):
    """Joins every row with the rows of a table that have its key: none, one or several.

    A left join keeps a row for which the table has nothing, with nulls; an inner join drops it. Null is equal to
    nothing, NaN to NaN. A column of the table whose name is there already gets the suffix.
    """

    kind: ClassVar[str] = "enrich"
    table: TableSpec
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: EnrichKind = "inner"
    columns: tuple[str, ...] | None = None  # of the table; None: all but its key
    suffix: str = "_right"

    def __post_init__(self) -> None:
        """Refuse what is no join."""
        if not self.left_on or len(self.left_on) != len(self.right_on):
            raise FlowError(
                f"enrich needs as many key columns in the table as in the rows, at least one: "
                f"not {self.left_on} and {self.right_on}"
            )
        if self.how not in ("inner", "left"):
            raise FlowError(f"how={self.how!r} is unknown; enrich is 'inner' or 'left'")
        if not self.suffix:
            raise FlowError("enrich needs a suffix for columns that both sides have")

    def open(self) -> TimedLogic:
        """Return the logic."""
        return EnrichLogic(self)

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key."""
        return self.left_on


class EnrichLogic:
    """Runs an enrichment."""

    def __init__(self, config: Enrich) -> None:
        """Load nothing before rows come."""
        self._config = config
        self._table: _Indexed | None = None
        self._asked_us = 0

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Look every row up."""
        config, table = self._config, self._current(moment.now_us)
        wanted = table.places_of(batch, config.left_on)
        matches = table.counts[wanted]
        rows = matches if config.how == "inner" else np.maximum(matches, 1)
        found = np.full(int(rows.sum()), _NOWHERE)
        found[np.repeat(matches > 0, rows)] = places(table.starts[wanted], matches)
        repeated = batch if (rows == 1).all() else batch.take(pa.array(np.repeat(np.arange(batch.num_rows), rows)))
        return (_beside(repeated, table.rows.take(pa.array(found, mask=found == _NOWHERE)), config.suffix),)

    def advance(self, moment: Moment) -> Outputs:
        """Time brings nothing out."""
        return (None,)

    def wake_us(self, moment: Moment) -> int | None:
        """A table is asked for when rows need it."""
        return None

    def _current(self, now_us: int) -> "_Indexed":
        """Return the table, loaded anew if it is time; one that cannot be loaded leaves the old one in place."""
        config, refresh_us = self._config, self._config.table.refresh_us
        if self._table is None:
            self._table, self._asked_us = _Indexed(config.table.load(now_us), config), now_us
        elif refresh_us is not None and now_us - self._asked_us >= refresh_us:
            self._asked_us = now_us
            table = config.table.refresh(now_us)
            if table is not None and table is not self._table.source:
                try:
                    self._table = _Indexed(table, config)
                except WrongResult as misfit:
                    log.warning("a table was not refreshed, the rows in use stay: %s", misfit)
        return self._table


class _Indexed:
    """A table in order of its keys: the rows of a key are a stretch."""

    def __init__(self, table: pa.Table, config: Enrich) -> None:
        """Bring the rows into order."""
        names = config.columns if config.columns is not None else table.column_names
        chosen = [name for name in names if name not in config.right_on]
        for name in (*config.right_on, *chosen):
            if name not in table.column_names:
                raise WrongResult(f"the table lacks column {name!r}; it has only: {', '.join(table.column_names)}")
        self.source = table
        batch = table_to_batch(table)
        lonely = lacks_key(batch, config.right_on)
        if lonely is not None:
            batch = batch.filter(pa.array(~lonely))
        keyed = keyed_rows(batch, config.right_on)
        order = np.argsort(keyed.codes, kind="stable")
        self.rows = batch.select(chosen).take(pa.array(order))
        # One more stretch, of no rows, is what "nowhere" points to.
        self.counts: Ints = np.bincount(keyed.codes, minlength=len(keyed.keys) + 1)
        self.starts = starts_of(self.counts)
        self._kinds = [batch.schema.field(name).type for name in config.right_on]
        self._names = config.right_on
        self._by_bytes = {encode_key(key): place for place, key in enumerate(keyed.keys)}
        self._known: dict[Any, int] = {}
        self._checked: pa.Schema | None = None

    def places_of(self, batch: pa.RecordBatch, key: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return for each row which of the table's keys it has."""
        self._check(batch.schema, key)
        keyed = keyed_rows(batch, key)
        found = list(map(self._known.get, keyed.keys))
        if None in found:
            if len(self._known) > _KEYS_MAX:
                self._known.clear()
            for one in keyed.keys:
                if one not in self._known:
                    self._known[one] = self._by_bytes.get(encode_key(one), _NOWHERE)
            found = list(map(self._known.get, keyed.keys))
        return np.array(found, np.int64)[keyed.codes]

    def _check(self, schema: pa.Schema, key: Sequence[str]) -> None:
        """Refuse keys that can never be equal to those of the table."""
        if schema is not self._checked and not (self._checked is not None and schema.equals(self._checked)):
            for names, kind in zip(zip(key, self._names, strict=True), self._kinds, strict=True):
                common_kind(names, [schema.field(names[0]).type, kind])
            self._checked = schema


def _beside(left: pa.RecordBatch, right: pa.RecordBatch, suffix: str) -> pa.RecordBatch:
    taken = set(left.schema.names)
    added = [pa.field(free_name(field.name, suffix, taken), field.type) for field in right.schema]
    return pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=pa.schema([*left.schema, *added]))
