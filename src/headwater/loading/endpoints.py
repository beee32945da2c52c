"""Where an application's rows come from and go to, as a user chooses: generated, real data, a file, a broker."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater.connectors import read, to
from headwater.connectors.application import App
from headwater.connectors.mqtt.options import joined, split
from headwater.dataflow.connectors import SinkSpec
from headwater.dataflow.stream import Flow, Stream
from headwater.model.errors import ConfigError

BROKERS: Final = ("mqtt", "mqtts")
KEPT: Final = "7 days"  # how long a broker keeps messages for a run that may be resumed,
UNKEPT: Final = "5 minutes"  # and for one that may not, but can lose its connection
SHOWN_ROWS: Final = 20  # of `--sink console`: enough to see the form of the results

# A line or message that cannot be parsed would stop the run, and the next one again: it is counted in the ledger
# instead.
_READERS: Final[dict[str, Callable[..., Stream]]] = {
    ".csv": partial(read.csv, bad_lines="skip"),
    ".json": partial(read.json, bad_lines="skip"),
    ".jsonl": partial(read.json, bad_lines="skip"),
    ".parquet": read.parquet,
}
_FILES: Final[dict[str, Callable[[str], SinkSpec]]] = {
    ".csv": to.csv,
    ".json": to.json,
    ".jsonl": to.json,
    ".txt": to.text,
    ".parquet": to.parquet,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """A user's choices for the two ends of an application."""

    rate: float | None = None
    rows: int | None = None
    data: Path | None = None
    loop: bool = False
    source: str | None = None
    sink: str | None = None
    is_kept: bool = False  # the run keeps its store and may be resumed: a broker should keep messages meanwhile

    def flow(self, app: App) -> Flow:
        """Build the application between these ends."""
        data = self._data(app)
        if data is not None:
            app = app.with_data(data)
        return app.flow(self._begin(app, data), lambda result: self._end(app, result))

    def refuse_any(self, what: str) -> None:
        """Refuse all of these options, for a flow that has its own ends."""
        said = [name for name in ("rate", "rows", "data", "source", "sink") if getattr(self, name) is not None]
        said += ["loop"] if self.loop else []
        if said:
            raise ConfigError(f"--{said[0]} is for applications (`headwater apps`); {what} says this itself")

    def _begin(self, app: App, data: Path | None) -> Stream:
        if self.source is not None:
            self._refuse_with_source()
            return _stream_from(self.source, app, {"rate": self.rate}, is_kept=self.is_kept)
        if data is not None and self.rows is not None and app.has_real_data:
            raise ConfigError(f"--rows {self.rows} is for made rows, and {data} has as many as it has: leave one away")
        if data is None and self.loop:
            raise ConfigError("--loop starts real data over; made rows never end by themselves")
        return app.source(rate=self.rate, rows=self.rows, data=data, loop=self.loop)

    def _data(self, app: App) -> Path | None:
        """Return the folder of real data; one from the environment is only for applications that have some."""
        if self.data is not None or self.rows is not None:
            return self.data
        place = os.environ.get("HEADWATER_DATA")
        return Path(place) if place and app.has_real_data else None

    def _refuse_with_source(self) -> None:
        if self.rows is not None or self.loop:
            raise ConfigError(f"--{'loop' if self.loop else 'rows'} is not for --source: it gives what it has")

    def _end(self, app: App, result: str) -> SinkSpec:
        match self.sink:
            case None | "nothing":
                return to.nothing()
            case "console":
                return to.console(limit=SHOWN_ROWS)
            case written:
                return _sink_at(written, result, app.messages.get(result))


def _stream_from(written: str, app: App, pace: dict[str, Any], *, is_kept: bool) -> Stream:
    _refuse_other_urls("--source", written)
    if written.partition(":")[0] in BROKERS:
        if pace["rate"] is not None:
            raise ConfigError("--rate is not for a broker: its messages come when they come")
        expiry = KEPT if is_kept else UNKEPT
        return read.mqtt(
            written, format=app.wire, schema=app.schema, session_expiry=expiry, bad_messages="skip", name="input"
        )
    reader = _READERS.get(Path(written).suffix)
    if app.wire == "text" or reader is None:
        if app.wire != "text":
            raise ConfigError(f"--source {written}: give mqtt://..., or a file ending in {', '.join(_READERS)}")
        return read.text(written, bad_lines="skip", name="input", **pace)
    return reader(written, schema=app.schema, name="input", **pace)


def _sink_at(written: str, result: str, message: str | None) -> SinkSpec:
    """Return the sink for one of the results; unless there is only one, its name goes into the topic or file name."""
    _refuse_other_urls("--sink", written)
    if written.partition(":")[0] in BROKERS:
        url = written if result == "results" else _deeper(written, result)
        return to.mqtt(url) if message is None else to.mqtt(url, format="text", column=message)
    path = Path(written)
    if path.suffix not in _FILES:
        known = ", ".join(_FILES)
        raise ConfigError(f"--sink {written}: give mqtt://..., console, nothing, or a file ending in {known}")
    if result != "results":
        path = path.with_stem(f"{path.stem}-{result}")
    if path.suffix == ".txt" and message is not None:
        return to.text(path, message)
    return _FILES[path.suffix](str(path))


def _deeper(url: str, result: str) -> str:
    """Return the address of one result among several: a level more, and a client of its own."""
    address, said = split(url)
    if "client_id" in said:
        said["client_id"] += f"-{result}"
    return joined(f"{address}/{result}", said)


def _refuse_other_urls(option: str, written: str) -> None:
    """Refuse an address of another kind without quoting it: it may hold a password."""
    scheme, there_is, _ = written.partition("://")
    if there_is and scheme not in BROKERS:
        raise ConfigError(f"{option} {scheme}://...: only {' and '.join(BROKERS)} are known; give one, or a file")
