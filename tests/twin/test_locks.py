"""The twin locks what its sinks write to, as the engine does: nothing of Spark's is needed for that."""

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.model.errors import ConnectorError
from headwater.twin.sink_query import SinkQuery

NO_STREAM: Any = None


def test_two_queries_do_not_write_one_file(tmp_path: Path) -> None:
    """The second is refused before it touches the file, and has it once the first is closed."""
    path, checkpoint = tmp_path / "rows.csv", tmp_path / "checkpoint"
    first = SinkQuery("air", "out", hw.to.csv(path, mode="append"), NO_STREAM, checkpoint)
    with pytest.raises(ConnectorError, match=r"rows\.csv is used by sink 'out' of flow 'air' \(pid "):
        SinkQuery("water", "out", hw.to.csv(path, mode="overwrite"), NO_STREAM, checkpoint)
    first.close()
    SinkQuery("water", "out", hw.to.csv(path, mode="overwrite"), NO_STREAM, checkpoint).close()


def test_a_sink_that_cannot_be_opened_lets_go_of_its_target(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    for _ in range(2):
        with pytest.raises(ConnectorError, match="exists and is not empty"):
            SinkQuery("air", "out", hw.to.csv(path), NO_STREAM, tmp_path / "checkpoint")
