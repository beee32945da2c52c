"""Tables: of files and of rows in memory, refreshed without ever stopping a flow."""

import logging
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.connectors.tables import FileTable, table
from headwater.model.errors import ConnectorError, FlowError
from headwater.operators.tables import TableSpec

ROWS = [{"id": 1, "room": "hall"}, {"id": 2, "room": None}]
SCHEMA = pa.schema([("id", pa.int32()), ("room", pa.string())])


def written(path: Path, content: str = "") -> str:
    """Write the rows in the format that the name says, or something else."""
    if content:
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".csv":
        path.write_text("id,room\n1,hall\n2,\n", encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text('{"id": 1, "room": "hall"}\n{"id": 2, "room": null}\n', encoding="utf-8")
    return str(path)


def loaded(source: Any, **how: Any) -> pa.Table:
    """Return the rows of a table as a worker would see them."""
    spec: TableSpec = pickle.loads(pickle.dumps(table(source, **how)))
    return spec.load(0)


@pytest.mark.parametrize("name", ["rooms.csv", "rooms.json", "rooms.jsonl", "rooms.ndjson", "rooms.parquet"])
def test_a_file_is_read_as_its_name_says(tmp_path: Path, name: str) -> None:
    """With the types found, or those declared, and only the columns declared."""
    path = written(tmp_path / name)
    assert loaded(path).to_pylist() == ROWS
    assert loaded(Path(path), schema=SCHEMA).schema == SCHEMA
    assert loaded(path, schema=pa.schema([("room", pa.string())])).to_pylist() == [{"room": "hall"}, {"room": None}]


class Collected:
    """What a Spark DataFrame is here: something that can be had as Arrow."""

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Return the rows."""
        return pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize(
    "source",
    [
        ROWS,
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pd.DataFrame({"id": [1, 2], "room": ["hall", None]}),
        Collected(),
        {"id": [1, 2], "room": ("hall", None)},
        {"id": np.array([1, 2]), "room": pd.Series(["hall", None])},
        lambda: ROWS,
    ],
    ids=lambda source: type(source).__name__,
)
def test_rows_in_memory_are_a_table_in_any_form(source: Any) -> None:
    """A Spark DataFrame is collected when the flow is built; a function is called when the rows are needed."""
    spec = table(source)
    assert spec.load(0).to_pylist() == ROWS
    again = spec.refresh(1)
    assert again is not None
    assert again.to_pylist() == ROWS


def test_a_dict_by_key_is_a_table_too() -> None:
    """With the columns of its values, or one called value."""
    assert loaded({"a": {"room": 1}, "b": {"floor": 2}}).to_pylist() == [
        {"key": "a", "room": 1, "floor": None},
        {"key": "b", "room": None, "floor": 2},
    ]
    assert loaded({"a": 1, "b": 2}).to_pylist() == [{"key": "a", "value": 1}, {"key": "b", "value": 2}]


def test_a_file_that_was_not_touched_is_not_read_again(tmp_path: Path) -> None:
    """One that was changed is, also if only its content has changed."""
    path = tmp_path / "rooms.csv"
    spec = table(written(path), refresh="10 s")
    assert spec.refresh_us == 10_000_000
    first = spec.load(0)
    assert spec.refresh(1) is first
    newer = tmp_path / "newer.csv"
    written(newer, "id,room\n1,attic\n2,\n")
    os.replace(newer, path)
    changed = spec.refresh(2)
    assert changed is not None
    assert changed.to_pylist()[0]["room"] == "attic"


@pytest.mark.parametrize("content", ["id,room\n1,hall,too,many\n", "\xff\xfe", "gone"])
def test_a_refresh_that_fails_says_so_and_gives_nothing(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Half written or gone: the caller keeps what it has; a first load raises instead."""
    path = tmp_path / "rooms.csv"
    spec = table(written(path), refresh="1 minute")
    spec.load(0)
    if content == "gone":
        path.unlink()
    else:
        path.write_bytes(content.encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        assert spec.refresh(1) is None
    assert "rooms.csv was not refreshed, the rows in use stay" in caplog.text
    with pytest.raises(ConnectorError, match=r"rooms\.csv"):
        spec.load(2)


def test_a_function_that_raises_is_a_refresh_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises."""
    answers = iter([ROWS])

    def fetched() -> Any:
        return next(answers)

    spec = table(fetched, refresh="1 s")
    assert spec.load(0).num_rows == 2
    with caplog.at_level(logging.WARNING):
        assert spec.refresh(1) is None
    assert "the table fetched was not refreshed" in caplog.text


def test_a_declared_column_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """Said by name."""
    missing = pa.schema([("floor", pa.int64())])
    for name in ("rooms.csv", "rooms.parquet"):
        with pytest.raises(ConnectorError, match="floor"):
            loaded(written(tmp_path / name), schema=missing)
    with pytest.raises(FlowError, match="floor"):
        table(ROWS, schema=missing)


def test_what_is_no_table_is_refused_when_the_flow_is_built() -> None:
    """Unknown formats, things that are no rows, and a refresh of what cannot change."""
    with pytest.raises(FlowError, match=r"rooms\.xlsx is not one of \.csv"):
        table("rooms.xlsx")
    with pytest.raises(FlowError, match="a int is not rows"):
        table(5)
    with pytest.raises(FlowError, match="only a file or a function can be refreshed"):
        table(ROWS, refresh="1 s")
    with pytest.raises(FlowError, match="longer than nothing"):
        table("rooms.csv", refresh="0 s")
    assert table("rooms.csv") == FileTable(path=os.path.abspath("rooms.csv"))
