"""Charts of results, put into zip files and stored: the second half of RIoTBench's STATS with plots."""

import io
import os
import re
import zipfile
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .charts import Series, line_chart
from .counting import DISTINCT_COUNT
from .datasets import Dataset
from .estimating import KIND
from .parsing import OBSERVABLE, SENSOR

TIMES: Final = "times"
RESULTS: Final = "results"
TITLE: Final = "title"
SVG: Final = "svg"
CHART: Final = pa.schema([(TITLE, pa.string()), (SVG, pa.string())])
ARCHIVE: Final = pa.schema([("file", pa.string()), ("data", pa.binary()), ("charts", pa.int64())])
STORED: Final = pa.schema([("file", pa.string()), ("bytes", pa.int64()), ("charts", pa.int64())])

_DATE: Final = (1980, 1, 1, 0, 0, 0)  # of every file in an archive: equal charts make equal archives
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_MAX: Final = 100


@dataclass(frozen=True)
class Plot:
    """Draws a chart of the results that were gathered for it."""

    dataset: Dataset

    def __call__(self, gathered: pa.RecordBatch) -> pa.RecordBatch:
        """Draw a batch of charts."""
        names = (SENSOR, OBSERVABLE, KIND, TIMES, RESULTS)
        rows = list(zip(*(gathered[name].to_pylist() for name in names), strict=True))
        titles = [f"{kind.replace('_', ' ')} of {observable}, {sensor}" for sensor, observable, kind, _, _ in rows]
        svgs = [self._drawn(title, *row[1:]) for title, row in zip(titles, rows, strict=True)]
        return pa.RecordBatch.from_arrays([pa.array(titles, pa.string()), pa.array(svgs, pa.string())], schema=CHART)

    def _drawn(self, title: str, observable: str, kind: str, times: list[int], results: list[list[float]]) -> str:
        unit = "sensors" if kind == DISTINCT_COUNT else self.dataset.field(observable).unit
        span = f"{len(results)} results from {_written(times[0])} to {_written(times[-1])}, in order"
        return line_chart(title, span, unit, _series(results))


def _written(time_ms: int) -> str:
    """Write a time of the messages: of any year, whatever a sensor's clock says."""
    return str(np.datetime64(time_ms, "ms").astype("datetime64[s]")).replace("T", " ")


def _series(results: list[list[float]]) -> list[Series]:
    """Return the lines of a chart: of predictions the nearest and the farthest, else the one that there is."""
    numbers, ahead = range(1, len(results) + 1), len(results[0])
    nearest = Series("value" if ahead == 1 else "1 value ahead", numbers, [values[0] for values in results])
    if ahead == 1:
        return [nearest]
    return [nearest, Series(f"{ahead} values ahead", numbers, [values[-1] for values in results])]


def zipped(charts: pa.RecordBatch) -> dict[str, list[Any]]:
    """Put charts into one archive; its name is that of its content, so storing it twice is storing it once."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (title, svg) in enumerate(zip(charts[TITLE].to_pylist(), charts[SVG].to_pylist(), strict=True)):
            name = _NOT_IN_NAMES.sub("_", title)[:_NAME_MAX]
            archive.writestr(zipfile.ZipInfo(f"{number:03}-{name}.svg", _DATE), svg, zipfile.ZIP_DEFLATED)
    data = content.getvalue()
    name = f"charts-{blake2b(data, digest_size=8).hexdigest()}.zip"
    return {"file": [name], "data": [data], "charts": [charts.num_rows]}


@dataclass(frozen=True)
class Upload:
    """Stores archives in a directory; without one it only tells how large they are."""

    directory: str

    def __call__(self, archives: pa.RecordBatch) -> pa.RecordBatch:
        """Store a batch of archives."""
        for name, data in zip(archives["file"].to_pylist(), archives["data"].to_pylist(), strict=True):
            if self.directory:
                _stored(Path(self.directory), name, data)
        sizes = pa.array([len(data) for data in archives["data"].to_pylist()], pa.int64())
        return pa.RecordBatch.from_arrays([archives["file"], sizes, archives["charts"]], schema=STORED)


def _stored(directory: Path, name: str, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    directory.mkdir(parents=True, exist_ok=True)
    half = directory / f".{name}.{os.getpid()}"
    half.write_bytes(data)
    half.replace(directory / name)
