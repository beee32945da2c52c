"""The six applications on PyFlink, each in the form that its users would choose.

TM and Nexmark's queries are Flink SQL: no Python touches a row. RIoTBench's operators are Python functions on streams,
with keyed state. Every row of a step costs a way from Java to Python and back: so steps that nothing separates are one
function, messages stay whole, and a function gives its results for a message as one text.
"""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
from pyflink.common import Types
from pyflink.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

from bench.rivals import riot_rows as riot

Settings = dict[str, Any]


def _lines(environment: StreamExecutionEnvironment, port: int) -> DataStream:
    """Read lines; PyFlink has no name for the socket source of Flink's Java API."""
    return DataStream(environment._j_stream_execution_environment.socketTextStream("127.0.0.1", port))


def _written(texts: DataStream | Any, port: int) -> None:
    """Write texts to a socket, by the sink of Flink's Java API."""
    stream = texts._j_data_stream if isinstance(texts, DataStream) else texts
    schema = get_gateway().jvm.org.apache.flink.api.common.serialization.SimpleStringSchema()
    stream.writeToSocket("127.0.0.1", port, schema)


class Keyed(KeyedProcessFunction):
    """A function with one object of state for each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state."""
        self.state = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))


class Known(FlatMapFunction):
    """Parses and numbers messages, and drops what unknown sensors sent."""

    def __init__(self, senders: str) -> None:
        """Know where the senders are written."""
        self._senders = senders

    def open(self, runtime_context: RuntimeContext) -> None:
        """Build the filter, and begin to count."""
        self._bloom = riot.bloom_of(riot.known_senders(self._senders))
        self._number = -1

    def flat_map(self, value: str) -> Iterator[Any]:
        """Take a line."""
        self._number += 1
        message = riot.message(self._number, value.encode())
        if message.source in self._bloom:
            yield tuple(message)


class Summarize(Keyed):
    """Predicts by the trend of smoothed values, and estimates the second moment of the values."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        """Take a message of a sensor."""
        summary = self.state.value() or riot.Summary()
        yield _texts(summary.statistics(riot.Message(*value)))
        self.state.update(summary)


class Count(Keyed):
    """Counts the sensors of each observable; a sketch is kept in its own compact form."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        """Take a message."""
        kept = self.state.value() or [None] * len(riot.MEASURED)
        counts = [riot.DistinctCount.opened(one) for one in kept]
        yield _texts(riot.counted(riot.Message(*value), counts))
        self.state.update([count.closed() for count in counts])


def stats(environment: StreamExecutionEnvironment, port: int, results: int, settings: Settings) -> None:
    """Publish trends, second moments and the number of sensors."""
    messages = _lines(environment, port).flat_map(Known(settings["senders"]))
    by_sensor = messages.key_by(lambda message: message[2], key_type=Types.STRING())
    together = messages.key_by(lambda message: 0, key_type=Types.INT())
    summaries = by_sensor.process(Summarize(), output_type=Types.STRING())
    _written(summaries.union(together.process(Count(), output_type=Types.STRING())), results)


class Number(FlatMapFunction):
    """Parses and numbers messages."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Begin to count."""
        self._number = -1

    def flat_map(self, value: str) -> Iterator[Any]:
        """Take a line."""
        self._number += 1
        yield tuple(riot.message(self._number, value.encode()))


class Errors(Keyed):
    """Tells how far a regression is off."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        """Take a message."""
        message = riot.Message(*value)
        estimate = self.state.value() or riot.ErrorEstimate()
        error = estimate.estimated(message.values[4], riot.regressed(message))
        self.state.update(estimate)
        yield _array(riot.answered(message, "MLR", error))


def pred(environment: StreamExecutionEnvironment, port: int, results: int, settings: Settings) -> None:
    """Classify messages, and tell how far a regression is off."""
    messages = _lines(environment, port).flat_map(Number())
    classes = messages.map(_classified, output_type=Types.STRING())
    errors = messages.key_by(lambda message: message[2], key_type=Types.STRING()).process(
        Errors(), output_type=Types.STRING()
    )
    _written(classes.union(errors), results)


def _classified(value: Any) -> str:
    message = riot.Message(*value)
    return _array(riot.answered(message, "DTC", float(riot.classified(message))))


class Load(Keyed):
    """Cleans, completes and annotates a sensor's messages, and numbers the rows to be inserted."""

    def __init__(self, senders: str) -> None:
        """Know where the senders are written."""
        self._senders = senders

    def open(self, runtime_context: RuntimeContext) -> None:
        """Read what is known of the senders."""
        super().open(runtime_context)
        self._known = riot.known_senders(self._senders)
        self._bloom = riot.bloom_of(self._known)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        """Take a message."""
        loaded = self.state.value() or riot.Loaded()
        row, inserted = loaded.rows(riot.Message(*value), self._bloom, self._known)
        self.state.update(loaded)
        yield _array(inserted) + _texts([riot.senml(row)])


def etl(environment: StreamExecutionEnvironment, port: int, results: int, settings: Settings) -> None:
    """Clean, complete and annotate; insert and publish."""
    messages = _lines(environment, port).flat_map(Number())
    by_sensor = messages.key_by(lambda message: message[2], key_type=Types.STRING())
    _written(by_sensor.process(Load(settings["senders"]), output_type=Types.STRING()), results)


def _texts(texts: list[str]) -> str:
    return "\n".join([*texts, ""])


def _array(values: list[Any]) -> str:
    return orjson.dumps(values).decode() + "\n"


def _sql(
    environment: StreamExecutionEnvironment, port: int, results: int, table: str, schema: Schema, query: str
) -> None:
    """Run a query over the lines as a table; its one column is the text of a result."""
    tables = StreamTableEnvironment.create(environment)
    tables.create_temporary_view(table, tables.from_data_stream(_lines(environment, port), schema))
    text = get_gateway().jvm.java.lang.Class.forName("java.lang.String")
    _written(tables._j_tenv.toDataStream(tables.sql_query(query)._j_table, text), results)


def tm(environment: StreamExecutionEnvironment, port: int, results: int, settings: Settings) -> None:
    """Average the speeds of each vehicle, and tell who is too fast."""
    schema = (
        Schema.new_builder()
        .column("f0", DataTypes.STRING())
        .column_by_expression("vehicle", "JSON_VALUE(f0, '$.vehicle')")
        .column_by_expression("speed", "CAST(JSON_VALUE(f0, '$.speed') AS DOUBLE)")
        .column_by_expression("came", "PROCTIME()")
        .build()
    )
    _sql(environment, port, results, "readings", schema, _TOO_FAST)


_TOO_FAST = r"""
SELECT CONCAT('["', vehicle, '",', CAST(speed AS STRING), ',', CAST(total / number AS STRING), ',',
              CAST(number AS STRING), ']', U&'\000A')
FROM (
    SELECT vehicle, speed, SUM(speed) OVER w AS total, COUNT(speed) OVER w AS number
    FROM readings
    WHERE vehicle IS NOT NULL AND speed IS NOT NULL
    WINDOW w AS (PARTITION BY vehicle ORDER BY came ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
WHERE total / number > 50.0
"""


def _auctions(*columns: str) -> Schema:
    """Return the columns that a query needs of an event; all events count for the watermark."""
    when = "CAST(REPLACE(SUBSTRING(JSON_VALUE(f0, '$.dateTime'), 1, 26), 'T', ' ') AS TIMESTAMP(3))"
    schema = Schema.new_builder().column("f0", DataTypes.STRING())
    schema = schema.column_by_expression("kind", "JSON_VALUE(f0, '$.kind')").column_by_expression("dateTime", when)
    for column in columns:
        schema = schema.column_by_expression(column, f"JSON_VALUE(f0, '$.{column}')")
    return schema.watermark("dateTime", "`dateTime` - INTERVAL '4' SECOND").build()


def nexmark_q5(environment: StreamExecutionEnvironment, port: int, results: int, settings: Settings) -> None:
    """Count bids by auction and window, and tell the largest counts of each window, as Flink's own Nexmark does."""
    _sql(environment, port, results, "events", _auctions("auction"), _HOT_ITEMS)


_COUNTS = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE events, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    WHERE kind = 'bid'
    GROUP BY auction, window_start, window_end
"""
_SINCE_1970 = "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {0})"
_HOT_ITEMS = rf"""
SELECT CONCAT('[', CAST(CAST({_SINCE_1970.format("counts.window_start")} AS BIGINT) * 1000000 AS STRING), ',',
              counts.auction, ',', CAST(counts.num AS STRING), ']', U&'\000A')
FROM ({_COUNTS}) AS counts
JOIN (
    SELECT MAX(num) AS most, window_start, window_end FROM ({_COUNTS}) GROUP BY window_start, window_end
) AS largest
ON counts.window_start = largest.window_start AND counts.window_end = largest.window_end AND counts.num >= largest.most
"""


def nexmark_q7(environment: StreamExecutionEnvironment, port: int, results: int, settings: Settings) -> None:
    """Find the highest bids of each window, by a join within it."""
    _sql(environment, port, results, "events", _auctions("auction", "bidder", "price", "extra"), _HIGHEST_BIDS)


_BIDS = """
    SELECT auction, bidder, CAST(price AS BIGINT) AS price, `dateTime`, extra, window_start, window_end
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    WHERE kind = 'bid'
"""
_HIGHEST_BIDS = rf"""
SELECT CONCAT('[', bids.auction, ',', bids.bidder, ',', CAST(bids.price AS STRING), ',',
              CAST(CAST({_SINCE_1970.format("bids.`dateTime`")} AS BIGINT) * 1000000
                   + EXTRACT(MILLISECOND FROM bids.`dateTime`) * 1000 AS STRING), ',"', bids.extra, '"]', U&'\000A')
FROM ({_BIDS}) AS bids
JOIN (
    SELECT MAX(price) AS highest, window_start, window_end FROM ({_BIDS}) GROUP BY window_start, window_end
) AS best
ON bids.window_start = best.window_start AND bids.window_end = best.window_end AND bids.price = best.highest
"""


JOBS: dict[str, Callable[[StreamExecutionEnvironment, int, int, Settings], None]] = {
    "stats": stats,
    "pred": pred,
    "etl": etl,
    "nexmark_q5": nexmark_q5,
    "nexmark_q7": nexmark_q7,
    "tm": tm,
}
