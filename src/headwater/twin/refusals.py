"""What Structured Streaming cannot express, found in the graph before anything starts.

Every refusal names the operator and the reason. What is not refused gives the same rows as Headwater.
"""

from collections.abc import Iterator
from typing import Final

from headwater.connectors.mqtt.source import MqttSource
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Declaration
from headwater.model.time import MILLISECOND
from headwater.operators.base import OnError, Operator
from headwater.operators.distinct import Dedup, Distinct
from headwater.operators.enriching import Enrich
from headwater.operators.joins.joining import StreamJoin
from headwater.operators.learning.models import Model, ModelWithUpdates
from headwater.operators.learning.online import Learn
from headwater.operators.limiting import Limit
from headwater.operators.processors.processing import Process
from headwater.operators.projections import Drop, Project, Rename, WithColumns
from headwater.operators.ranking import TopK
from headwater.operators.reducing import Reduce
from headwater.operators.sql import Transform
from headwater.operators.stateful import Stateful
from headwater.operators.stateless import Filter, FlatMap, KeyBy, Map, Select, Split, Union
from headwater.operators.watermarks import WithWatermark
from headwater.operators.windows.windows import CountWindow, SessionWindow, TimeWindow, WindowOperator
from headwater.twin.paths import upstream

_PLAIN: Final = (Map, FlatMap, Filter, Split, Model, Project, WithColumns, Drop, Rename)
_STATEFUL: Final = (Stateful, Reduce, TopK, Learn)
_KNOWN: Final = (
    *_PLAIN,
    *_STATEFUL,
    *(
        KeyBy,
        Select,
        Union,
        WithWatermark,
        WindowOperator,
        StreamJoin,
        Enrich,
        Dedup,
        Distinct,
        Process,
        Transform,
        Limit,
    ),
)
_SIDES: Final = ("late", "late_right")


def refusals(graph: Graph) -> list[str]:
    """Return a sentence for everything in the graph that Structured Streaming cannot express."""
    found: list[str] = []
    for declared in graph.declarations:
        if isinstance(declared.part, Operator):
            found += _of_operator(declared.name, declared.part)
            found += _of_place(graph, declared)
        if isinstance(declared.part, MqttSource):
            found.append(
                f"source {declared.name!r} reads from an mqtt broker, which must hear when a message is committed; "
                "Structured Streaming does not tell a source of another engine when that is, run it on Headwater"
            )
        found += [
            f"operator {declared.name!r} reads the late rows of {given.operator!r}; "
            "Structured Streaming drops late rows, run it on Headwater"
            for given in declared.inputs
            if given.port in _SIDES
        ]
    return found


def is_plain(part: object) -> bool:
    """Whether this is an operator whose output follows from its input, batch by batch."""
    return isinstance(part, _PLAIN)


def is_stateful(operator: Operator) -> bool:
    """Whether the operator has state per key and no counterpart in Spark."""
    return isinstance(operator, _STATEFUL)


def _runs_as_it_is(operator: Operator) -> bool:
    """Whether the operator's own logic runs, inside a task of Spark's."""
    counts = isinstance(operator, WindowOperator) and isinstance(operator.window, CountWindow)
    return is_plain(operator) or is_stateful(operator) or counts


def keeps_state(operator: Operator) -> bool:
    """Whether a query has to keep state for this operator."""
    return is_stateful(operator) or isinstance(
        operator, WindowOperator | StreamJoin | Dedup | Distinct | Process | Limit
    )


def is_behind(operator: Operator) -> bool:
    """Whether Spark shows rows state that the watermark before them has ended, since it ends state after the rows.

    A key that is to be forgotten, a session that is over, a timer that has expired: all of them still exist when the
    rows of the next micro-batch come, unless a micro-batch without rows is in between.
    """
    match operator:
        case WindowOperator(window=SessionWindow()) | Process(time_mode="eventtime"):
            return True
        case Dedup() | Distinct():
            return operator.within_us is not None
    return False


def _of_operator(name: str, operator: Operator) -> Iterator[str]:
    match operator:
        case WindowOperator():
            yield from _of_window(name, operator)
        case WithWatermark():
            yield from _of_watermark(name, operator)
        case Distinct(method="bloom"):
            yield (
                f"distinct {name!r} uses a bloom filter, whose answers are approximate in a way of their own; "
                "Structured Streaming knows exact values only, use method='exact'"
            )
        case Enrich() if operator.table.refresh_us is not None:
            yield (
                f"enrich {name!r} refreshes its table while the flow runs; "
                "a query of Structured Streaming reads a table once, leave out refresh="
            )
        case ModelWithUpdates():
            yield (
                f"model {name!r} is replaced by rows of a second stream; "
                "Structured Streaming has no state that all keys share, run it on Headwater"
            )
        case Model() if operator.model.refresh_us is not None:
            yield (
                f"model {name!r} is looked for again while the flow runs; "
                "on Structured Streaming a model is loaded once, leave out refresh="
            )
        case _ if not isinstance(operator, _KNOWN):
            yield f"operator {name!r} is a {operator.kind}, for which Structured Streaming has no counterpart"
    if operator.on_error is OnError.DEAD_LETTER and not _runs_as_it_is(operator):
        yield (
            f"{operator.kind} {name!r} makes dead letters of rows that raise; "
            "Structured Streaming runs it by itself and stops at an error, leave out on_error="
        )
    if isinstance(operator, Dedup | Distinct) and operator.within_us is not None and operator.within_us % MILLISECOND:
        yield f"{operator.kind} {name!r} remembers to the microsecond; Structured Streaming knows whole milliseconds"


def _of_window(name: str, operator: WindowOperator) -> Iterator[str]:
    what = f"{operator.kind} {name!r}"
    if operator.early_us is not None or operator.early_rows is not None:
        yield f"{what} fires early; Structured Streaming's append mode shows a window once, run it on Headwater"
    if operator.lateness_us:
        yield (
            f"{what} fires again for rows that come late; Structured Streaming drops a window when it has fired, "
            "make the delay of with_watermark longer instead"
        )
    window = operator.window
    if isinstance(window, TimeWindow | SessionWindow) and window.time is None:
        yield f"{what} goes by the clock; Structured Streaming has windows of event time only, run it on Headwater"


def _of_watermark(name: str, operator: WithWatermark) -> Iterator[str]:
    if operator.idle_us is not None:
        yield (
            f"with_watermark {name!r} goes on without an idle input; "
            "in Structured Streaming the slowest input always rules, leave out idle="
        )
    if operator.heartbeat_us is not None:
        yield (
            f"with_watermark {name!r} goes on with the clock; "
            "in Structured Streaming only rows move a watermark, leave out heartbeat="
        )
    if operator.delay_us % MILLISECOND:
        yield f"with_watermark {name!r} has a delay in microseconds; Structured Streaming knows whole milliseconds"


def _of_place(graph: Graph, declared: Declaration) -> Iterator[str]:
    """Find operators that may not follow others."""
    if isinstance(declared.part, WithWatermark):
        before = upstream(graph, declared.name)
        second = next((one.name for one in before if isinstance(one.part, WithWatermark)), None)
        if second is not None:
            yield (
                f"with_watermark {declared.name!r} follows with_watermark {second!r}; "
                "Structured Streaming takes one watermark on the way from a source to a sink"
            )
