"""Which rows of a batch go to which instance.

The types of a stream's rows are known only when they come, so a value that cannot be a key, and a column that Arrow
cannot split, show here. They raise `WrongKey`: that is an error of one app, and must not affect others.
"""

import numpy as np
import pyarrow as pa

from headwater.dataflow.graph import Spread
from headwater.engine.plans import Outlet
from headwater.model.keys import KEY_GROUPS, KeyGroups, WrongKey, keyed_rows


def spread(outlet: Outlet, batch: pa.RecordBatch, own_index: int, turn: int) -> list[tuple[int, pa.RecordBatch]]:
    """Return which rows go to which instance; raises WrongKey where a key does not allow it."""
    targets = outlet.targets
    if len(targets) == 1:
        return [(targets[0], batch)]
    if outlet.spread is Spread.FORWARD:
        return [(targets[own_index], batch)]
    if outlet.spread is Spread.BALANCE:
        return [(targets[turn % len(targets)], batch)]
    try:
        return _by_key(outlet, batch)
    except (pa.ArrowException, KeyError) as failure:  # the latter where two columns have the key's name
        raise WrongKey(f"its rows cannot be parted by {', '.join(outlet.key)}: {failure}") from failure


def _by_key(outlet: Outlet, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    rows = keyed_rows(batch, outlet.key)
    kinds = tuple(batch.schema.field(column).type for column in outlet.key)
    groups = _groups.setdefault(kinds, KeyGroups()).of(rows.keys)
    of_row = (np.array(groups, np.int64) * len(outlet.targets) // KEY_GROUPS)[rows.codes]  # as `owner_of` does
    present = np.flatnonzero(np.bincount(of_row)).tolist()
    if len(present) == 1:
        return [(outlet.targets[present[0]], batch)]
    return [(outlet.targets[owner], batch.take(pa.array(np.flatnonzero(of_row == owner)))) for owner in present]


_groups: dict[tuple[pa.DataType, ...], KeyGroups] = {}  # by the key's types: 1 equals True, but is another key
