"""The first row of each key or value: Spark's `dropDuplicates`, for ever or within the watermark.

Spark remembers a row until the watermark has passed its event time by the delay in the column's metadata. That delay
can be chosen, so it is the horizon of the operator, not the delay of the watermark.
"""

import pyarrow as pa

from headwater.model.time import MILLISECOND
from headwater.operators.distinct import Dedup, Distinct
from headwater.twin.streams import EVENT_TIME, Site, TwinStream, computed


def deduplicated(site: Site) -> TwinStream:
    """Return the first row of every key."""
    operator = site.operator
    assert isinstance(operator, Dedup)
    return _first(site.inputs[0], operator.key_columns, operator.time, operator.within_us)


def distinct(site: Site) -> TwinStream:
    """Return the distinct values of some columns."""
    operator = site.operator
    assert isinstance(operator, Distinct)
    rows = _first(site.inputs[0], operator.columns, operator.time, operator.within_us)
    places = [rows.schema.get_field_index(name) for name in operator.columns]
    plain = rows.frame.toDF(*(f"c{at}" for at in range(len(rows.schema))))
    schema = site.schema or pa.schema([rows.schema.field(at) for at in places])
    return computed(plain.select(*(f"c{at}" for at in places)), schema, site.where)


def _first(rows: TwinStream, key: tuple[str, ...], time: str | None, within_us: int | None) -> TwinStream:
    places = [rows.schema.get_field_index(name) for name in key]
    names = [f"c{at}" for at in range(len(rows.schema))]
    chosen = [names[at] for at in places]
    if time is None or within_us is None:
        first = rows.frame.toDF(*names).dropDuplicates(chosen)
    else:
        timed = rows.with_event_time(time, within_us // MILLISECOND).toDF(*names, EVENT_TIME)
        first = timed.dropDuplicatesWithinWatermark(chosen).drop(EVENT_TIME)
    return TwinStream(first.toDF(*rows.schema.names), rows.schema)
