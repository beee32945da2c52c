"""State that another node has sent, or a disk has spoilt: it is read, or refused as damaged, and nothing else."""

import contextlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.model.errors import StoreError
from headwater.operators.state_values import decode_value, encode_value
from headwater.operators.windows.object_parts import (
    Collected,
    DecimalSum,
    DistinctPart,
    EdgeObject,
    ExtremeObject,
    ObjectPart,
)

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
