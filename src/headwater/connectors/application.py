"""An application: a flow with an input of its own, which can be replaced by any other of the same shape.

Those that ship with Headwater are in `apps/`. An application is a frozen dataclass whose fields are its options; what
it does to rows is in `build`, a plain function from streams to streams that a user can copy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from headwater.connectors import read
from headwater.connectors.files.formats import TextFormat
from headwater.dataflow.connectors import SinkSpec
from headwater.dataflow.stream import Flow, Stream, flow
from headwater.model.errors import ConfigError

Wire = Literal["json", "text"]


@dataclass(frozen=True, kw_only=True)
class App(ABC):
    """One application. The first line of its docstring is what `headwater apps` says of it."""

    name: ClassVar[str]  # as in `headwater run NAME`: the place of its module under `apps/`
    wire: ClassVar[Wire] = "json"  # the form of an input row in a file or on a broker: a JSON object, or any line
    messages: ClassVar[Mapping[str, str]] = {}  # of results that are messages already: the column with the text to send

    @property
    def schema(self) -> pa.Schema:
        """The columns of an input row; lines of text have the one column `line`."""
        if self.wire == "text":
            return TextFormat.schema
        raise TypeError(f"{type(self).__name__} must declare the columns of its rows")

    @abstractmethod
    def made(self) -> Callable[[int, int], Any]:
        """Return a generator of input rows: a function of the first row's number and a count, always the same."""

    @property
    def has_real_data(self) -> bool:
        """Whether there is a real input to read."""
        return type(self).real is not App.real

    def real(self, data: Path, *, rate: float | None, loop: bool) -> Stream:
        """Read the real input from a directory laid out as docs/data.md says."""
        raise ConfigError(f"{self.name} has no real data to read; leave --data away, and rows are made")

    def with_data(self, data: Path) -> Self:
        """Return the application for that real input: some need more of `data` than its rows."""
        return self

    @abstractmethod
    def build(self, rows: Stream) -> Stream | Mapping[str, Stream]:
        """Return the results, or several kinds of them by name."""

    def source(
        self, *, rate: float | None = None, rows: int | None = None, data: Path | None = None, loop: bool = False
    ) -> Stream:
        """Begin with made rows, or with the real ones in `data`."""
        if data is not None:
            return self.real(data, rate=rate, loop=loop)
        return read.generator(self.made(), rate=rate, rows=rows, schema=self.schema, name="input")

    def flow(self, rows: Stream, sink: Callable[[str], SinkSpec]) -> Flow:
        """Build the flow; `sink` is asked for a sink for each kind of result, by name."""
        results = self.build(rows)
        named = results if isinstance(results, Mapping) else {"results": results}
        return flow(self.name, *(stream.sink(sink(name)) for name, stream in named.items()))
