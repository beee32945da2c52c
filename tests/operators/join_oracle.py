"""Joins in plain Python, one row at a time, all pairs by brute force: what the real ones are held against."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from headwater.model.entries import ALL_GROUPS, EVERY_GROUP, group_of_entry
from headwater.model.keys import encode_key, group_of
from headwater.model.time import BEGINNING_OF_TIME
from headwater.operators.joins.joins import IntervalJoin, WindowJoin
from tests.operators.timed_bench import Row, TimedBench

EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))
Step = tuple[int, list[Row]] | int  # rows of an input, or a watermark


def at(time_us: int) -> datetime:
    """Return an instant."""
    return EPOCH + timedelta(microseconds=time_us)


def us(instant: datetime) -> int:
    """Return the microseconds of an instant."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def comparable(rows: Sequence[Row]) -> list[str]:
    """Return rows in a form in which NaN is equal to itself."""
    return [repr(sorted(row.items(), key=lambda item: item[0])) for row in rows]


def is_same_key(one: Any, other: Any) -> bool:
    """Whether two keys match: null matches nothing, NaN matches NaN."""
    if one is None or other is None:
        return False
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return bool(one == other)


class Oracle:
    """Either join, by brute force."""

    def __init__(self, join: WindowJoin | IntervalJoin) -> None:
        """Begin with nothing."""
        self.join = join
        self.watermark_us = BEGINNING_OF_TIME
        self.waiting: list[list[tuple[Row, int, bool]]] = [[], []]  # row, window's start, has had a partner
        self.out: list[Row] = []
        self.late: list[list[Row]] = [[], []]

    def run(self, steps: Sequence[Step]) -> None:
        """Go through rows and watermarks."""
        for step in steps:
            if isinstance(step, int):
                self.advance(step)
            else:
                for row in step[1]:
                    self.take(row, step[0])

    def take(self, row: Row, source: int) -> None:
        """Pair one row with all that wait."""
        starts = [] if row["t"] is None else [start for start in self.starts(us(row["t"])) if self.is_open(start)]
        if not starts:
            self.late[source].append(row)
        for start in starts:
            matched = False
            for index, (other, other_start, _) in enumerate(self.waiting[1 - source]):
                left, right = (row, other) if source == 0 else (other, row)
                if is_same_key(left["k"], right["k"]) and self.belong(left, right, start, other_start):
                    matched = True
                    self.waiting[1 - source][index] = (other, other_start, True)
                    self.out.append(self.joined(left, right, start))
            self.waiting[source].append((row, start, matched))

    def advance(self, watermark_us: int) -> None:
        """Give up what has no partner any more."""
        self.watermark_us = watermark_us
        for source in (0, 1):
            gone = [one for one in self.waiting[source] if self.is_over(us(one[0]["t"]), one[1], source)]
            self.waiting[source] = [one for one in self.waiting[source] if one not in gone]
            if self.join.is_outer(source):
                alone = [(row, start) for row, start, had_partner in gone if not had_partner]
                self.out += [
                    self.joined(row if source == 0 else None, row if source == 1 else None, start)
                    for row, start in alone
                ]

    def starts(self, time_us: int) -> list[int]:
        """The windows of a row; an interval join has none, and stands for it with 0."""
        if isinstance(self.join, IntervalJoin):
            return [0] if time_us >= self.watermark_us else []
        window = self.join.window
        last = time_us - (time_us - window.offset_us) % window.slide_us
        count = -(-window.size_us // window.slide_us)
        found = [last - nth * window.slide_us for nth in range(count - 1, -1, -1)]
        return [start for start in found if start + window.size_us > time_us]

    def is_open(self, start: int) -> bool:
        """Whether a window takes rows."""
        return isinstance(self.join, IntervalJoin) or start + self.join.window.size_us > self.watermark_us

    def is_over(self, time_us: int, start: int, source: int) -> bool:
        """Whether no partner can come."""
        if isinstance(self.join, WindowJoin):
            return not self.is_open(start)
        return self.watermark_us > time_us + (self.join.upper_us if source == 0 else -self.join.lower_us)

    def belong(self, left: Row, right: Row, start: int, other_start: int) -> bool:
        """Whether two rows belong together in time."""
        if isinstance(self.join, WindowJoin):
            return start == other_start
        return self.join.lower_us <= us(right["t"]) - us(left["t"]) <= self.join.upper_us

    def joined(self, left: Row | None, right: Row | None, start: int) -> Row:
        """Return the row that comes out."""
        lead = {}
        if isinstance(self.join, WindowJoin):
            lead = {"window": {"start": at(start), "end": at(start + self.join.window.size_us)}}
        key = left["k"] if left is not None else (right or {})["k"]
        sides = (left or {}, right or {})
        return {
            **lead,
            "k": key,
            "t": sides[0].get("t"),
            "x": sides[0].get("x"),
            "t_right": sides[1].get("t"),
            "y": sides[1].get("y"),
        }


def batch_of(source: int, rows: Sequence[Row], key: pa.DataType | None = None) -> pa.RecordBatch:
    """Return rows of one side."""
    value = ("x", "y")[source]
    schema = pa.schema([("k", key or pa.string()), ("t", pa.timestamp("us", "UTC")), (value, pa.int64())])
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def schemas_of(key: pa.DataType | None = None) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of both sides."""
    return batch_of(0, [], key).schema, batch_of(1, [], key).schema


def play(bench: TimedBench, steps: Sequence[Step], key: pa.DataType | None = None) -> None:
    """Let a bench go through rows and watermarks."""
    for step in steps:
        if isinstance(step, int):
            bench.watermark(step)
        elif step[1]:
            bench.rows(batch_of(*step, key), step[0])


def recut(steps: Sequence[Step], size: int) -> list[Step]:
    """Return the same rows in batches of at most this size."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, int):
            found.append(step)
        else:
            found += [(step[0], step[1][start : start + size]) for start in range(0, len(step[1]), size)]
    return found


def play_in_two(
    operator: WindowJoin | IntervalJoin, before: Sequence[Step], after: Sequence[Step], at_group: int
) -> list[Row]:
    """Return what comes out if the keys are spread over two instances in the middle, and merged before the end."""
    low = TimedBench(operator)
    play(low, before)
    high = low.cut(range(at_group, ALL_GROUPS.stop))
    low.groups = range(at_group)
    for step in after:
        for bench in (low, high):
            if isinstance(step, int):
                bench.watermark(step)
            else:
                play(bench, [(step[0], [row for row in step[1] if group_of(encode_key(row["k"])) in bench.groups])])
    low.merge(high)
    low.groups = ALL_GROUPS
    low.end()
    assert is_empty(low)
    return low.out["out"] + high.out["out"]


def is_empty(bench: TimedBench) -> bool:
    """Whether nothing is kept but what belongs to all keys."""
    return all(group_of_entry(entry) == EVERY_GROUP for entry in bench.kept)
