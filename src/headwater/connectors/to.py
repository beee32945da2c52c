"""Where a stream ends: files, the console, memory, a function, an MQTT broker.

Every function returns a sink for `stream.sink(...)` and touches nothing; files and connections are opened when the app
runs. `mode` says what a new app does with an existing file; an app that is restarted continues its own.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn, TextIO

import pyarrow as pa

from headwater.connectors.files.encoding import NotFinite
from headwater.connectors.files.files import Path, local_path
from headwater.connectors.files.linesink import CsvSink, JsonSink, Mode, TextSink
from headwater.connectors.files.tablesink import ROWS_PER_FILE, ParquetSink
from headwater.connectors.in_process import CallSink, ConsoleSink, MemorySink, NothingSink
from headwater.connectors.mqtt.address import parsed_url
from headwater.connectors.mqtt.client import Version, Will, whole_seconds
from headwater.connectors.mqtt.messages import MessageFormat
from headwater.connectors.mqtt.options import WRITING, will, with_options
from headwater.connectors.mqtt.sink import INFLIGHT, MqttSink
from headwater.connectors.mqtt.topics import TopicTemplate
from headwater.dataflow import near_names
from headwater.dataflow.calling import Uncalled, answered
from headwater.model.errors import FlowError

__all__ = ["call", "console", "csv", "json", "memory", "mqtt", "nothing", "parquet", "text", "will"]


@answered
def csv(path: Path, *, mode: Mode = "error", sync: bool = False) -> CsvSink:
    """Write a CSV file with a header; the first rows fix its columns."""
    return CsvSink(path=local_path(path), mode=mode, sync=sync)


@answered
def json(path: Path, *, mode: Mode = "error", sync: bool = False, not_finite: NotFinite = "null") -> JsonSink:
    """Write a file of JSON lines. It has no word for NaN and infinity: they are null, and counted, or refused."""
    return JsonSink(path=local_path(path), mode=mode, sync=sync, not_finite=not_finite)


@answered
def text(path: Path, column: str = "line", *, mode: Mode = "error", sync: bool = False) -> TextSink:
    """Write the text of one column, a line a row."""
    return TextSink(path=local_path(path), column=column, mode=mode, sync=sync)


@answered
def parquet(
    directory: Path, *, mode: Mode = "error", rows_per_file: int = ROWS_PER_FILE, sync: bool = False
) -> ParquetSink:
    """Write Parquet files of `rows_per_file` rows into a directory."""
    return ParquetSink(directory=local_path(directory), mode=mode, rows_per_file=rows_per_file, sync=sync)


@answered
def console(limit: int | None = None, file: TextIO | None = None) -> ConsoleSink:
    """Print rows in aligned columns, at most `limit` of them."""
    return ConsoleSink(limit=limit, file=file)


@answered
def memory(limit: int | None = None) -> MemorySink:
    """Keep rows in this process, the latest `limit` of them; read them with `rows()`, `batches()` or `table()`."""
    return MemorySink(limit)


@answered
def nothing() -> NothingSink:
    """Count rows and forget them."""
    return NothingSink()


@answered
def call(function: Callable[[pa.RecordBatch], object]) -> CallSink:
    """Call `function(batch)` in the node's process; after a crash it may see rows again."""
    return CallSink(function=function)


@answered
@with_options(WRITING)
def mqtt(
    url: str,
    topic: str | None = None,
    *,
    format: MessageFormat = "json",  # noqa: A002 - the word that users know
    column: str | None = None,
    qos: int = 1,
    retain: bool = False,
    will: Will | None = None,
    version: Version = "5",
    client_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    password_file: Path | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    keepalive: str | timedelta = "30 seconds",
    inflight: int = INFLIGHT,
    not_finite: NotFinite = "null",
) -> MqttSink:
    """Send rows to a broker, a message each: `mqtt://[user[:password]@]host[:port]/topic`, or `mqtts://` with TLS.

    A topic may hold columns, as `city/{source}` does. Texts and bytes are those of `column`. A write ends when the
    broker has answered for every row. NaN and infinity are null in JSON, and counted, or refused. `will` is what the
    broker sends if this sink vanishes. Most of this can be said in the URL as well, behind a `?`, and goes before what
    is said here. All about it is in docs/mqtt.md.
    """
    address, in_url = parsed_url(
        url,
        username=username,
        password=password,
        password_file=password_file,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    if bool(in_url) == (topic is not None):
        raise FlowError(f"give one topic to send to, behind {address}/ or as topic=")
    return MqttSink(
        address=address,
        topic=TopicTemplate(in_url if topic is None else topic),
        format=format,
        column=column,
        qos=qos,
        retain=retain,
        will=will,
        version=version,
        client_id=client_id,
        keepalive_s=whole_seconds(keepalive, "keepalive"),
        inflight=inflight,
        not_finite=not_finite,
    )


def __getattr__(name: str) -> NoReturn:
    near_names.refuse("headwater.to", name, near_names.TO, __all__)


def __dir__() -> list[str]:
    return list(__all__)


sys.modules[__name__].__class__ = Uncalled
