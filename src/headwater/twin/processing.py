"""`process(p)`: the user's own StatefulProcessor, passed to transformWithState as it is."""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.operators.processors.processing import Process
from headwater.twin.columns import quoted, spark_form, struct_of
from headwater.twin.stateless import Chained
from headwater.twin.streams import Site, TwinStream

_MODES: Final = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}


def processed(site: Site) -> TwinStream:
    """Return the processor's result for the rows of each key."""
    operator, rows = site.operator, site.inputs[0]
    assert isinstance(operator, Process)
    frame = rows.frame
    if operator.time_mode == "eventtime" and operator.event_time is not None:
        frame = rows.marked(operator.event_time)
    keys = [quoted(name) for name in operator.key_columns]
    initial = None
    if operator.initial_state is not None:
        initial = site.session.createDataFrame(operator.initial_state).groupBy(*keys)
    grouped = frame.groupBy(*keys)
    run = grouped.transformWithStateInPandas if operator.form == "pandas" else grouped.transformWithState
    made = run(
        _Told(operator.processor, site.chained()),
        struct_of(spark_form(operator.schema, site.where)),
        "Append",
        _MODES[operator.time_mode],
        initial,
    )
    return TwinStream(made, operator.schema)


class _Told(StatefulProcessor):
    """The user's processor, with a report of what it raises."""

    def __init__(self, processor: Any, chained: Chained) -> None:
        self._processor, self._chained = processor, chained

    def init(self, handle: StatefulProcessorHandle) -> None:
        with self._chained.blaming():
            self._processor.init(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        with self._chained.blaming():
            yield from self._processor.handleInputRows(key, rows, timerValues) or ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        with self._chained.blaming():
            yield from self._processor.handleExpiredTimer(key, timerValues, expiredTimerInfo) or ()

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        with self._chained.blaming():
            self._processor.handleInitialState(key, initialState, timerValues)

    def close(self) -> None:
        with self._chained.blaming():
            self._processor.close()
