"""Where a stream begins: files, generated rows, Python iterables, an MQTT broker.

Every function returns a `Stream` and touches nothing; files and connections are opened when the app runs. Rows come as
fast as the flow takes them, or at `rate` rows a second, or by the times in `time_column`, replayed `speed` times as
fast.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from headwater.connectors.cities import CITY_SCHEMA, CityRows
from headwater.connectors.files.files import Path, local_path
from headwater.connectors.frames import RowsGiven
from headwater.connectors.mqtt.address import parsed_url
from headwater.connectors.mqtt.client import NEVER_EXPIRES, Version, Will, whole_seconds
from headwater.connectors.mqtt.messages import MessageFormat
from headwater.connectors.mqtt.options import READING, with_options
from headwater.connectors.mqtt.source import INFLIGHT, PAYLOAD_BYTES_MAX, BadMessages, MqttSource
from headwater.connectors.mqtt.topics import checked_filter, shared_filter
from headwater.connectors.pacing import Pace
from headwater.connectors.sources import (
    GENERATED_ROWS,
    BadLines,
    CsvSource,
    GeneratorSource,
    IterableSource,
    JsonSource,
    ParquetSource,
    TextSource,
)
from headwater.dataflow import near_names
from headwater.dataflow.arguments import schema_of
from headwater.dataflow.calling import Uncalled, answered
from headwater.dataflow.stream import SchemaLike, Stream, source
from headwater.model.errors import FlowError

__all__ = ["cities", "csv", "generator", "iterable", "json", "mqtt", "parquet", "text"]


@answered
def csv(
    path: Path,
    *,
    schema: SchemaLike = None,
    header: bool = True,
    delimiter: str = ",",
    nulls: Sequence[str] = ("",),
    rate: float | None = None,
    time_column: str | None = None,
    speed: float = 1.0,
    follow: bool = False,
    loop: bool = False,
    bad_lines: BadLines = "stop",
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read CSV files: one, a directory or a pattern. Without a schema the first rows decide the types.

    A type found that way widens when later rows need it: whole numbers to fractions, anything to text.
    """
    spec = CsvSource(
        path=local_path(path),
        schema=schema_of(schema),
        pace=Pace(rate=rate, time_column=time_column, speed=speed),
        header=header,
        delimiter=delimiter,
        nulls=tuple(nulls),
        follow=follow,
        loop=loop,
        bad_lines=bad_lines,
        can_wait=can_wait,
    )
    return source(spec, name=name)


@answered
def json(
    path: Path,
    *,
    schema: SchemaLike = None,
    rate: float | None = None,
    time_column: str | None = None,
    speed: float = 1.0,
    follow: bool = False,
    loop: bool = False,
    bad_lines: BadLines = "stop",
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read files of JSON lines. A declared schema picks its fields; without one every field becomes a column."""
    spec = JsonSource(
        path=local_path(path),
        schema=schema_of(schema),
        pace=Pace(rate=rate, time_column=time_column, speed=speed),
        follow=follow,
        loop=loop,
        bad_lines=bad_lines,
        can_wait=can_wait,
    )
    return source(spec, name=name)


@answered
def text(
    path: Path,
    *,
    rate: float | None = None,
    follow: bool = False,
    loop: bool = False,
    bad_lines: BadLines = "stop",
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read files of text, a row of one column `line` for each line."""
    spec = TextSource(
        path=local_path(path),
        pace=Pace(rate=rate),
        follow=follow,
        loop=loop,
        bad_lines=bad_lines,
        can_wait=can_wait,
    )
    return source(spec, name=name)


@answered
def parquet(
    path: Path,
    *,
    schema: SchemaLike = None,
    rate: float | None = None,
    time_column: str | None = None,
    speed: float = 1.0,
    follow: bool = False,
    loop: bool = False,
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read Parquet files; `follow` waits for further files in a directory."""
    spec = ParquetSource(
        path=local_path(path),
        schema=schema_of(schema),
        pace=Pace(rate=rate, time_column=time_column, speed=speed),
        follow=follow,
        loop=loop,
        can_wait=can_wait,
    )
    return source(spec, name=name)


@answered
def generator(
    function: Callable[[int, int], Any],
    *,
    rate: float | None = None,
    rows: int | None = None,
    schema: SchemaLike = None,
    batch_rows: int = GENERATED_ROWS,
    name: str | None = None,
) -> Stream:
    """Generate rows with `function(first_row, count)`, which must return the same rows for the same numbers every time.

    It returns a RecordBatch, a DataFrame, a dict of columns or a list of row dicts; fewer rows than asked are the last.
    """
    spec = GeneratorSource(
        function=function, pace=Pace(rate=rate), rows=rows, schema=schema_of(schema), batch_rows=batch_rows
    )
    return source(spec, name=name)


@answered
def iterable(
    items: RowsGiven | Callable[[], RowsGiven],
    *,
    schema: SchemaLike = None,
    rate: float | None = None,
    name: str | None = None,
) -> Stream:
    """Take rows from a table (Arrow, pandas, Polars, Spark), a Python iterable, or a function that returns either.

    The items of an iterable are dicts, tables or single values, which become column `value`. An index of pandas that
    has a name becomes a column. After a restart all is gone through again from the start.
    """
    return source(IterableSource(items=items, schema=schema_of(schema), pace=Pace(rate=rate)), name=name)


@answered
def cities(
    sensors: int = 500, *, rate: float | None = None, rows: int | None = None, seed: int = 7, name: str | None = None
) -> Stream:
    """Make readings like those of the Sense Your City sensors: seven cities, a reading per sensor and minute."""
    spec = GeneratorSource(
        function=CityRows(sensors=sensors, seed=seed),
        pace=Pace(rate=rate),
        rows=rows,
        schema=CITY_SCHEMA,
        kind="cities",
    )
    return source(spec, name=name)


@answered
@with_options(READING)
def mqtt(
    url: str,
    topics: str | Sequence[str] | None = None,
    *,
    format: MessageFormat = "json",  # noqa: A002 - the word that users know
    schema: SchemaLike = None,
    qos: int = 1,
    version: Version = "5",
    client_id: str | None = None,
    shared: str | None = None,
    session_expiry: str | timedelta | None = "7 days",
    username: str | None = None,
    password: str | None = None,
    password_file: Path | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    keepalive: str | timedelta = "30 seconds",
    inflight: int = INFLIGHT,
    bad_messages: BadMessages = "stop",
    payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    topic_column: str | None = None,
    retained_column: str | None = None,
    will: Will | None = None,
    name: str | None = None,
) -> Stream:
    """Read messages from a broker: `mqtt://[user[:password]@]host[:port]/topic`, or `mqtts://` with TLS.

    A message is acknowledged when its rows are committed. `shared` names a group of readers that divide the messages
    among them. While the app is away, the broker keeps its messages for `session_expiry`; None is for ever. `will` is
    what the broker sends if this source vanishes. Most of this can be said in the URL as well, behind a `?`, and goes
    before what is said here. All about it is in docs/mqtt.md.
    """
    address, topic = parsed_url(
        url,
        username=username,
        password=password,
        password_file=password_file,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    given = [topics] if isinstance(topics, str) else list(topics or ())
    wanted = [*([topic] if topic else []), *given]
    if not wanted:
        raise FlowError(f"no topic to read from {address}; write {address}/city/dust, or pass topics=")
    spec = MqttSource(
        address=address,
        topics=tuple(checked_filter(one) if shared is None else shared_filter(shared, one) for one in wanted),
        format=format,
        declared=schema_of(schema),
        qos=qos,
        version=version,
        client_id=client_id,
        session_expiry_s=NEVER_EXPIRES if session_expiry is None else whole_seconds(session_expiry, "session_expiry"),
        keepalive_s=whole_seconds(keepalive, "keepalive"),
        inflight=inflight,
        bad_messages=bad_messages,
        payload_bytes_max=payload_bytes_max,
        topic_column=topic_column,
        retained_column=retained_column,
        will=will,
    )
    return source(spec, name=name)


def __getattr__(name: str) -> NoReturn:
    near_names.refuse("headwater.read", name, near_names.READ, __all__)


def __dir__() -> list[str]:
    return list(__all__)


sys.modules[__name__].__class__ = Uncalled
