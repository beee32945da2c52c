"""The state of a processor, looked at from outside."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headwater as hw
from headwater.model.errors import ConfigError, StoreError
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig

LONG = "long " * 200
NESTED = "a struct<x:int,ys:array<struct<y:string>>>, m map<string,struct<z:double>>, at timestamp"


class Nested(StatefulProcessor):
    """Keeps rows in rows, under keys of any length, and registers timers."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("nested", NESTED)
        self.pairs = handle.getMapState("pairs", "k string, n int", "v int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self.value.update(((1, [("y",), None]), {"k": (0.5,), "none": None}, row.at))
            for name in ("short", LONG):
                self.pairs.updateValue((name, 1), (len(name),))
            self.handle.registerTimer(10**13)
        return iter(())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the state of two keys, on two instances; the flow has not ended."""
    at = pa.array([0, 1], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": [1, 2], "name": ["a", LONG], "at": at}).to_pylist()
    made = hw.read.iterable(rows, name="rows").key_by("id", "name")
    kept = made.process(Nested(), "id int", form="rows", name="it", parallelism=2, time_mode="ProcessingTime")
    with Node(NodeConfig(store=tmp_path, workers=1, spark=False)) as node:
        app = node.deploy(hw.flow("f", kept.sink(hw.to.nothing(), name="out")))
        assert node.wait(app, 60.0)
    return tmp_path


def test_what_a_variable_holds_is_a_table_of_keys_and_values(store: Path) -> None:
    """Rows in rows as structs, maps as maps; a key that is too long for an entry's name is not known."""
    table = hw.read_state(store, "f", "it", "nested")
    assert table.schema.field("key").type == pa.struct([("id", pa.int64()), ("name", pa.string())])
    first, second = sorted(table.to_pylist(), key=lambda row: row["key"] is None)
    assert first["key"] == {"id": 1, "name": "a"}
    assert first["value"]["a"] == {"x": 1, "ys": [{"y": "y"}, None]}
    assert first["value"]["m"] == [("k", {"z": 0.5}), ("none", None)]
    assert first["value"]["at"].timestamp() == 0
    assert (second["key"], second["value"]["at"].microsecond) == (None, 1)
    assert {row["expires_ms"] for row in (first, second)} == {None}


def test_the_pairs_of_a_map_have_keys_of_any_length(store: Path) -> None:
    found = hw.read_state(store, "f", "it", "pairs").to_pylist()
    pairs = [(row["key"] is None, row["map_key"]["k"], row["map_key"]["n"], row["value"]["v"]) for row in found]
    expected = [(is_long, name, 1, len(name)) for is_long in (False, True) for name in ("short", LONG)]
    assert sorted(pairs) == sorted(expected)


def test_what_is_not_there_is_told(store: Path, tmp_path: Path) -> None:
    """By what there is."""
    listed = hw.read_state(store, "f").to_pylist()
    assert [(row["variable"], row["kind"], row["instances"], row["time_mode"]) for row in listed] == [
        ("nested", "Value", 2, "processingtime"),
        ("pairs", "Map", 2, "processingtime"),
        ("timers", "Timer", 2, "processingtime"),
    ]
    assert listed[1]["key_schema"] == "k string, n int"
    for asked, told in (
        ((store, "g"), "has nothing of a flow 'g'"),
        ((store, "f", "rows"), "'rows' is no operator with state variables; what has some: it"),
        ((store, "f", "it", "nest"), "'it' has no state variable 'nest', but: nested, pairs"),
        ((tmp_path / "nowhere", "f"), "there is no store in"),
    ):
        with pytest.raises(ConfigError, match=told):
            hw.read_state(*asked)
    with Node(NodeConfig(store=store, workers=1, spark=False)), pytest.raises(StoreError, match="is in use by"):
        hw.read_state(store, "f")  # LMDB opens a store once in a process


def test_timers_are_rows_too(tmp_path: Path) -> None:
    """While they are registered: when the input has ended, all have fired."""

    def two_keys(first: int, count: int) -> list[dict[str, Any]]:
        return [
            {"id": number % 2, "name": ("a", LONG)[number % 2], "at": None} for number in range(first, first + count)
        ]

    made = hw.read.generator(two_keys, rows=10**9, rate=100, name="rows").key_by("id", "name")
    kept = made.process(Nested(), "id int", form="rows", name="it", time_mode="ProcessingTime")
    with Node(NodeConfig(store=tmp_path, workers=1, spark=False)) as node:
        app = node.deploy(hw.flow("f", kept.sink(hw.to.nothing(), name="out")))
        while (told := node.ledger(app)).rows_in - told.waiting < 2:
            pass
    found = hw.read_state(tmp_path, "f", "it", "timers").to_pylist()
    assert [row["expiry_ms"] for row in found] == [10**13] * 2
    assert sorted(len(row["key"]["name"]) for row in found) == [1, len(LONG)]
