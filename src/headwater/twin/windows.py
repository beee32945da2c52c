"""Windows of event time, as Spark's own: `window` and `session_window`, in append mode."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headwater.operators.windows.windows import CountWindow, SessionWindow, TimeWindow, WindowAggregate, WindowOperator
from headwater.twin.aggregates import aggregate_column, depends_on_order
from headwater.twin.columns import quoted
from headwater.twin.keyed import per_key
from headwater.twin.places import PLACE, with_places
from headwater.twin.streams import EVENT_TIME, Site, TwinStream, computed
from headwater.twin.window_rows import over_rows


def windowed(site: Site) -> TwinStream:
    """Return the result of a window operator."""
    operator = site.operator
    assert isinstance(operator, WindowOperator)
    if isinstance(operator.window, CountWindow):
        return per_key(site.inputs[0], operator.key_columns, site.chained())
    if isinstance(operator, WindowAggregate):
        return computed(_aggregated(site, operator), site.schema, site.where)
    return over_rows(site, operator, grouped)


def _aggregated(site: Site, operator: WindowAggregate) -> DataFrame:
    rows = site.inputs[0]
    if isinstance(operator.window, SessionWindow) and any(map(depends_on_order, operator.aggregates)):
        rows = with_places(rows, site.where)
        return grouped(rows, operator, [aggregate_column(one, PLACE) for one in operator.aggregates])
    return grouped(rows, operator, [aggregate_column(one) for one in operator.aggregates])


def grouped(rows: TwinStream, operator: WindowOperator, columns: list[Column]) -> DataFrame:
    """Return a row for each window and key: the window, the key, and these columns."""
    window = operator.window
    assert isinstance(window, TimeWindow | SessionWindow)
    assert window.time is not None, "windows of the clock are refused"
    keys = [quoted(name) for name in operator.key_columns]
    return rows.with_event_time(window.time).groupBy(window_column(window).alias("window"), *keys).agg(*columns)


def window_column(window: TimeWindow | SessionWindow) -> Column:
    """Return the window of a row, made of its event time."""
    if isinstance(window, SessionWindow):
        return sf.session_window(EVENT_TIME, _micros(window.gap_us))
    return sf.window(EVENT_TIME, _micros(window.size_us), _micros(window.slide_us), _micros(window.offset_us))


def _micros(duration_us: int) -> str:
    return f"{duration_us} microseconds"
