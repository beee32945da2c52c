"""What the reports of a car tell: where it comes into a segment, where it stops and leaves again.

A car is stopped with its fourth report in a row from one place (expressway, lane, direction, position). One that was
last seen on an exit lane counts again only once it reports from an entry lane; until then its reports are passed over,
as the validator of the benchmark does.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import headwater as hw

from .reports import ENTRY, EXIT, REPORT, Whole

STOPPED_REPORTS: Final = 4
LEFT: Final = ("left_xway", "left_lane", "left_dir", "left_seg", "left_pos")  # where a stopped car was, else -1
TRACKED: Final = pa.schema(
    [*REPORT, ("crossed", pa.bool_()), ("stopped", pa.bool_()), *((name, pa.int64()) for name in LEFT)]
)

_PLACE: Final = ("xway", "lane", "dir", "seg", "pos")
_NOWHERE: Final = [-1] * len(_PLACE) + [
    0
]  # what is kept of a car: its last place, and how many reports it sent from it

Mask = npt.NDArray[np.bool_]


def track(reports: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Return the reports that count, and what each of them tells beside the one before it."""
    cars = len(state.keys)
    kept = state.arrays(len(_NOWHERE), np.int64, _NOWHERE)
    came = np.column_stack([reports[name].to_numpy() for name in _PLACE])
    # What is kept of a car stands in front of its reports: then every report has one before it.
    order = np.argsort(np.concatenate([np.arange(cars), state.codes]), kind="stable")
    places = np.concatenate([kept[:, :-1], came])[order]
    counted = np.flatnonzero(_counts(places[:, _PLACE.index("lane")], is_kept=order < cars))
    order, places = order[counted], places[counted]

    is_kept = order < cars
    before = np.concatenate([places[:1], places[:-1]])
    stays = _equal(places, before, ("xway", "lane", "dir", "pos"))
    runs = _runs(np.where(is_kept, kept[np.minimum(order, cars - 1), -1], 1), goes_on=stays & ~is_kept)
    lane, lane_before = places[:, _PLACE.index("lane")], before[:, _PLACE.index("lane")]
    is_new = ~_equal(places, before, ("xway", "dir", "seg")) | (lane_before == EXIT)
    leaves = ~stays & (np.concatenate([[0], runs[:-1]]) >= STOPPED_REPORTS)

    is_last = np.concatenate([is_kept[1:], [True]])
    state.put_arrays(np.column_stack([places, runs])[is_last])
    told = np.column_stack(
        [is_new & (lane != EXIT), runs == STOPPED_REPORTS, np.where(leaves[:, None], before, -1)]
    ).astype(np.int64)
    return _in_order(reports, order[~is_kept] - cars, told[~is_kept])


def _counts(lane: Whole, *, is_kept: Mask) -> Mask:
    """Return which reports count: all but those between an exit and the next entry."""
    turns = is_kept | (lane == ENTRY) | (lane == EXIT)
    last_turn = np.maximum.accumulate(np.where(turns, np.arange(len(lane)), 0))
    is_off = np.concatenate([[False], lane[last_turn][:-1] == EXIT])
    counts: Mask = is_kept | ~is_off | (lane == ENTRY)
    return counts


def _equal(places: Whole, others: Whole, names: tuple[str, ...]) -> Mask:
    chosen = [_PLACE.index(name) for name in names]
    equal: Mask = (places[:, chosen] == others[:, chosen]).all(axis=1)
    return equal


def _runs(begun: Whole, *, goes_on: Mask) -> Whole:
    """Return how many reports in a row are from one place, where a run that does not go on begins with a number."""
    places = np.arange(len(begun))
    start = np.maximum.accumulate(np.where(goes_on, 0, places))
    return begun[start] + places - start


def _in_order(reports: pa.RecordBatch, rows: Whole, told: Whole) -> pa.RecordBatch:
    """Return rows of the reports in the order in which they came, with what they tell."""
    arrival = np.argsort(rows)
    told = told[arrival]
    columns = reports.take(pa.array(rows[arrival])).columns
    flags = [pa.array(told[:, at] == 1) for at in (0, 1)]
    left = [pa.array(np.ascontiguousarray(told[:, 2 + at])) for at in range(len(LEFT))]
    return pa.record_batch([*columns, *flags, *left], schema=TRACKED)
