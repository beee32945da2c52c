"""State that another node has sent, or a disk has spoilt: it is read, or refused as damaged, and nothing else."""

import contextlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.model.errors import StoreError
from headwater.operators.processors.processing import Process
from headwater.operators.processors.processor_entries import LISTS
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.state_values import WrongState, decode_value, encode_value
from headwater.operators.windows.object_parts import (
    Collected,
    DecimalSum,
    DistinctPart,
    EdgeObject,
    ExtremeObject,
    ObjectPart,
)
from tests.operators.timed_bench import TimedBench
from tests.pyspark_suite.processors import InBothForms

VALUES: list[Any] = [
    (1, "two", [3.0, None]),
    {"a": np.arange(6).reshape(2, 3), "b": b"bytes"},
    [datetime(2026, 6, 1, tzinfo=UTC), timedelta(seconds=1), Decimal("1.25")],
    pd.Timestamp("2026-06-01", tz="Europe/Berlin"),
    pd.Timedelta(1, "ns"),
]
PIECE = encode_value([[1, 2], ["a", "b"]])
PARTS: list[tuple[ObjectPart, bytes]] = [
    (ExtremeObject("x", largest=True), encode_value("text")),
    (ExtremeObject("x", largest=False), encode_value(Decimal("1.5"))),
    (EdgeObject("x", last=True, ignore_nulls=False), encode_value([3, "text"])),
    (DecimalSum("x"), encode_value(Decimal("1.5"))),
    (Collected("x"), len(PIECE).to_bytes(4, "little") + PIECE),
    (DistinctPart("x"), encode_value([[1, "a"], [2, "b"]])),
]


def damaged(sound: bytes, draw: st.DataObject) -> bytes:
    """Return bytes of which some are others, or lack their end."""
    made = bytearray(sound)
    for _ in range(draw.draw(st.integers(1, 4))):
        made[draw.draw(st.integers(0, len(made) - 1))] = draw.draw(st.integers(0, 255))
    return bytes(made[: draw.draw(st.integers(1, len(made)))])


@given(value=st.sampled_from(VALUES), draw=st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_value_is_refused_or_is_one(value: Any, draw: st.DataObject) -> None:
    with contextlib.suppress(StoreError):
        decode_value(damaged(encode_value(value), draw))


@given(data=st.binary(max_size=100))
@example(b"\x81" * 50)
@example(b"\xc7\x02\x02\x91" * 2_000)
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with contextlib.suppress(StoreError):
        decode_value(data)


@pytest.mark.parametrize(("part", "sound"), PARTS, ids=[type(part).__name__ for part, _ in PARTS])
@given(draw=st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_part_of_an_aggregate_is_refused_or_is_one(
    part: ObjectPart, sound: bytes, draw: st.DataObject
) -> None:
    spoilt = damaged(sound, draw)
    with contextlib.suppress(StoreError):
        part.value(spoilt)
    with contextlib.suppress(StoreError):
        part.value(part.combine([sound, spoilt]))


class Everything(InBothForms):
    """Uses variables of every kind, some with a time to live, and a timer, and tells what it finds."""

    def init(self, handle: Any) -> None:
        """Declare them."""
        schema = "a int, b timestamp, c array<struct<x:int,y:string>>, d map<string,double>, e decimal(10,2)"
        self.handle = handle
        self.value = handle.getValueState("v", schema, 1_000_000)
        self.listed = handle.getListState("l", schema, 1_000_000)
        self.mapped = handle.getMapState("m", "k string", schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - PySpark's names
        """Read all, then write all."""
        found = [
            self.value.get(),
            list(self.listed.get()),
            list(self.mapped.iterator()),
            list(self.handle.listTimers()),
        ]
        instant = datetime(2026, 6, 1)  # noqa: DTZ001 - as PySpark gives it
        row = (1, instant, [(1, "x"), None], {"k": 1.5}, Decimal("1.50"))
        self.value.update(row)
        self.listed.appendValue(row)
        for name in ("short", "long " * 40):
            self.mapped.updateValue((name,), row)
        self.handle.registerTimer(5_000_000)
        return iter([self.made(told=str(len(found)))])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
        """Tell the key."""
        return iter([self.made(told=repr(key))])


def everything(kept: dict[bytes, bytes]) -> TimedBench:
    """Return it on the bench, with this state."""
    config: dict[str, Any] = {"form": "rows", "time_mode": "processingtime", "schema": arrow_schema("told string")}
    return TimedBench(Process(processor=Everything("rows"), key_columns=("id",), **config), kept)


SOUND = everything({})
for _ in range(3):
    SOUND.rows([{"id": key} for key in ("a", "long " * 200)])


@given(entry=st.sampled_from(sorted(SOUND.kept)), draw=st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_state_of_a_processor_is_refused_or_is_one(entry: bytes, draw: st.DataObject) -> None:
    """In rows, keys that are too long for a name, lists, times to live, schemas and timers."""
    on = everything(SOUND.kept | {entry: damaged(SOUND.kept[entry], draw)})
    with contextlib.suppress(StoreError, WrongState):
        on.rows([{"id": key} for key in ("a", "long " * 200)])
    with contextlib.suppress(StoreError, WrongState):
        on.clock(10_000_000_000)


def test_a_list_that_says_it_is_endless_is_refused_at_once() -> None:
    """Its elements are not looked for."""
    span = next(entry for entry in SOUND.kept if entry[0] == LISTS)
    on = everything(SOUND.kept | {span: msgspec.msgpack.encode((0, 1 << 60, 0))})
    with pytest.raises(StoreError, match="a list in the state is damaged"):
        on.rows([{"id": key} for key in ("a", "long " * 200)])
