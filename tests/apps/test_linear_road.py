"""Linear Road beside plain Python written from its rules, on made traffic, by hand and on the original sample."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from apps.linear_road.accidents import AccidentNotification
from apps.linear_road.reports import SAMPLE
from apps.linear_road.tolls import TollNotification
from headwater.engine.policies import Consumption
from headwater.model.errors import ConfigError
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, twin_results_of
from tests.apps.linear_road_oracle import LinearRoad


def made(app: hw.App, first: int, count: int) -> list[str]:
    lines: list[str] = app.made()(first, count)["line"].to_pylist()
    return lines


def run_on(app: hw.App, lines: Sequence[str], **settings: Any) -> list[Row]:
    """Run an application on lines; every row must be accounted for."""
    out = hw.to.memory()
    rows = hw.read.iterable([{"line": line} for line in lines], schema=app.schema)
    status = hw.run(app.flow(rows, lambda name: out), spark=False, **settings)
    assert status.ledger is not None
    assert status.ledger.balanced
    return out.rows()


def tolls(rows: Sequence[Row]) -> list[tuple[int, ...]]:
    return sorted((row["time"], row["vid"], row["type"], row["lav"], row["toll"]) for row in rows)


def warnings(rows: Sequence[Row]) -> list[tuple[int, ...]]:
    return sorted((row["time"], row["vid"], row["type"], row["xway"], row["seg"], row["dir"]) for row in rows)


def report(
    time: int, vid: int, *, spd: int = 50, lane: int = 1, seg: int = 10, pos: int | None = None, heading: int = 0
) -> str:
    where = seg * 5280 if pos is None else pos
    return f"0,{time},{vid},{spd},0,{lane},{heading},{seg},{where},-1,-1,-1,-1,-1,-1"


def crash(seg: int, *, from_s: int = 0, reports: int = 4) -> list[str]:
    """Two cars, 1 and 2, that stand at one place."""
    return [report(from_s + 30 * n, vid, spd=0, seg=seg) for n in range(reports) for vid in (1, 2)]


@pytest.mark.parametrize(
    ("first", "count", "options", "turns"),
    [
        (0, 9_000, {}, "all"),
        (5_000, 2_500, {"parallelism": 3}, "25"),
        (10_000, 5_000, {"expressways": 2, "parallelism": 2}, "700"),
    ],
    ids=["from the start", "in parallel, few rows a turn", "two expressways"],
)
def test_made_traffic_gets_the_answers_of_the_rules(
    first: int, count: int, options: dict[str, Any], turns: str
) -> None:
    lines, settings = made(TollNotification(**options), first, count), {"consumption": Consumption.parse(turns)}
    expected = LinearRoad(lines)
    found = tolls(run_on(TollNotification(**options), lines, **settings))
    assert found == sorted(expected.tolls)
    assert warnings(run_on(AccidentNotification(**options), lines, **settings)) == sorted(expected.warnings)
    assert sum(toll > 0 for *_, toll in found) > 5
    assert len(expected.warnings) > 20


def toll_of(lines: Sequence[str]) -> tuple[int, int]:
    """Return average speed and toll as car 99 is told them last."""
    rows = run_on(TollNotification(), lines)
    return [(row["lav"], row["toll"]) for row in rows if row["vid"] == 99][-1]


@pytest.mark.parametrize(
    ("cars", "mph", "expected"),
    [(51, 20, (20, 2)), (50, 20, (20, 0)), (60, 39, (39, 200)), (60, 40, (40, 0)), (0, 20, (0, 0))],
)
def test_a_toll_is_for_more_than_fifty_cars_slower_than_forty(cars: int, mph: int, expected: tuple[int, int]) -> None:
    crowd = [report(10, 1_000 + car, spd=mph) for car in range(cars)]
    assert toll_of([*crowd, report(60, 99, spd=70)]) == expected


def test_statistics_are_of_the_minutes_before() -> None:
    """The average is of five, halves rounded up; the cars are of the last, each counted once."""
    slow = [report(60 * minute + 10, 1, spd=10 * minute) for minute in range(7)]
    assert toll_of([*slow, report(60 * 7, 99)]) == (40, 0)
    crowd = [report(60 * 6 + second, 1_000 + car, spd=31) for second in (20, 50) for car in range(60)]
    assert toll_of([*crowd, report(60 * 7, 99)]) == (31, 200)
    assert toll_of([*crowd, report(60 * 8, 99)]) == (31, 0)
    assert toll_of([report(0, 1, spd=20), report(0, 2, spd=21), report(299, 99)]) == (21, 0)
    assert toll_of([report(0, 1, spd=20), report(360, 99)]) == (0, 0)


@pytest.mark.parametrize(
    ("ahead", "heading", "is_near"), [(0, 0, 1), (4, 0, 1), (5, 0, 0), (-1, 0, 0), (-4, 1, 1), (-5, 1, 0), (1, 1, 0)]
)
def test_an_accident_concerns_its_segment_and_four_before(ahead: int, heading: int, is_near: int) -> None:
    """There cars are warned, and pay nothing."""
    crash = [report(30 * n, vid, spd=0, seg=50 + ahead, heading=heading) for n in range(4) for vid in (1, 2)]
    crowd = [report(100, 1_000 + car, spd=20, seg=50, heading=heading) for car in range(60)]
    lines = [*crash, *crowd, report(120, 99, seg=50, heading=heading)]
    warned = [row["seg"] for row in run_on(AccidentNotification(), lines) if row["vid"] == 99]
    assert warned == [50 + ahead] * is_near
    assert (toll_of(lines)[1] == 0) == bool(is_near)


def test_an_accident_is_told_from_the_next_minute_until_the_one_in_which_it_is_cleared() -> None:
    """It happens at 95 s, with the fourth report of the second car, and one of the two is elsewhere at 245 s."""
    crash = [report(30 * n + vid * 5, vid, spd=0, lane=2) for n in range(8) for vid in (0, 1)]
    cleared = report(245, 0, spd=30, lane=2, pos=52_900)
    cars = [report(second, 100 + second) for second in (96, 119, 120, 239, 246, 299, 300)]
    lines = sorted([*crash, cleared, *cars], key=lambda line: int(line.split(",")[1]))
    warned = [row["time"] for row in run_on(AccidentNotification(), lines)]
    assert sorted(warned) == [120, 239, 246, 299]
    assert warned == [time for time, *_ in LinearRoad(lines).warnings]


@pytest.mark.parametrize("change", [{"seg": 11}, {"lane": 3}, {"pos": 52_801}])
def test_cars_that_stand_at_different_places_are_no_accident(change: dict[str, int]) -> None:
    one = [report(30 * n, 1, spd=0) for n in range(4)]
    other = [report(30 * n, 2, spd=0, **change) for n in range(4)]
    assert run_on(AccidentNotification(), [*one, *other, report(120, 99)]) == []


def test_three_reports_from_one_place_are_no_stop() -> None:
    moves_once = [report(30 * n, vid, spd=0, pos=52_800 if n else 52_000) for n in range(4) for vid in (1, 2)]
    assert run_on(AccidentNotification(), [*moves_once, report(120, 99)]) == []


def test_only_new_segments_are_told_and_none_to_those_who_exit() -> None:
    """After an exit a car counts again from an entry lane on, even in the same segment."""
    lanes = [(0, 10), (1, 10), (1, 11), (4, 12), (2, 12), (2, 13), (0, 12), (1, 12), (4, 12), (0, 12)]
    trip = [report(30 * n, 7, lane=lane, seg=seg) for n, (lane, seg) in enumerate(lanes)]
    told = [row["time"] // 30 for row in run_on(TollNotification(), trip)]
    assert told == [0, 2, 6, 9]
    assert told == [time // 30 for time, *_ in LinearRoad(trip).tolls]


def test_lines_that_are_no_records_are_set_aside() -> None:
    bad = ["", "nonsense", "0,1,2", report(0, 1, spd=101), report(0, 1, lane=5)]
    bad += [report(0, 1).replace("50", speed) for speed in ("fast", "0x32", "5_0", "\uff15\uff10")]
    app, out = TollNotification(), hw.to.memory()
    rows = hw.read.iterable([{"line": line} for line in [*bad, report(0, 99)]], schema=app.schema)
    status = hw.run(app.flow(rows, lambda name: out), spark=False)
    assert [row["vid"] for row in out.rows()] == [99]
    assert status.ledger is not None
    assert status.ledger.dropped["dead-letter"] == len(bad)


def test_the_original_sample_is_of_cars_that_enter(data: Path) -> None:
    """All within the first minute, so that nothing is known of any segment yet."""
    app, out = TollNotification(), hw.to.memory()
    hw.run(app.flow(app.source(data=data), lambda name: out), spark=False)
    lines = (data / SAMPLE).read_text(encoding="utf-8").split()
    assert tolls(out.rows()) == sorted(LinearRoad(lines).tolls)
    assert Counter((row["lav"], row["toll"]) for row in out.rows()) == {(0, 0): 279}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("testLav1.dat", [(0, 100, 0), (0, 200, 0), (120, 200, 0), (180, 100, 100)]),
        (
            "testNov1.dat",
            [
                *[(0, 100, 0), (2, 200, 0), (5, 300, 0), (7, 400, 0), (30, 100, 0), (32, 200, 0), (37, 400, 0)],
                *[(60, 100, 32), (62, 200, 0), (65, 300, 32), (67, 400, 32), (90, 100, 0), (92, 200, 0), (97, 400, 0)],
            ],
        ),
    ],
)
def test_files_made_by_hand_have_the_averages_they_were_made_for(
    data: Path, file: str, expected: list[tuple[int, int, int]]
) -> None:
    lines = (data / "linear_road" / file).read_text(encoding="utf-8").split()
    found = run_on(TollNotification(), lines)
    assert sorted((row["time"], row["vid"], row["lav"]) for row in found) == expected
    assert all(row["toll"] == 0 for row in found)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(SAMPLE)):
        TollNotification().source(data=tmp_path)


def test_made_cars_report_every_thirty_seconds_from_an_entry_to_an_exit() -> None:
    trips: dict[int, list[list[int]]] = {}
    for line in made(TollNotification(), 0, 12_000):
        kind, time, vid, spd, _, lane, direction, seg, pos, *rest = (int(field) for field in line.split(","))
        assert len(rest) == 6
        if kind == 0:
            assert seg == pos // 5_280
            assert 0 <= spd <= 100
            trips.setdefault(vid, []).append([time, lane, direction, pos])
    for reports in trips.values():
        assert reports[0][1] == 0
        for (time, lane, direction, pos), (next_time, next_lane, next_direction, next_pos) in pairwise(reports):
            if lane == 4:
                assert next_lane == 0
            else:
                assert (next_time, next_direction) == (time + 30, direction)
                assert next_pos >= pos if direction == 0 else next_pos <= pos
    assert any(4 in [lane for _, lane, *_ in reports[:-1]] for reports in trips.values()), "some come back"


def test_made_cars_enter_as_those_of_the_original(data: Path) -> None:
    """From entry lanes, at such speeds, in both directions alike; only the places differ, for there has to be a jam."""
    entering = [[int(field) for field in line.split(",")] for line in made(TollNotification(), 0, 12_000)]
    entering = [record for record in entering if record[0] == 0 and record[5] == 0]
    original = [[int(field) for field in line.split(",")] for line in (data / SAMPLE).read_text().split()]
    original = [record for record in original if record[0] == 0]
    assert {record[5] for record in original} == {0}
    assert min(r[3] for r in original) == min(r[3] for r in entering)
    assert max(r[3] for r in original) == max(r[3] for r in entering)
    for records in (original, entering):
        assert 0.42 < sum(record[6] for record in records) / len(records) < 0.58
        assert 22 < sum(record[3] for record in records) / len(records) < 28


@pytest.mark.spark
@pytest.mark.parametrize("app", [TollNotification(), AccidentNotification()], ids=lambda app: app.name)
def test_the_twin_gives_the_same(app: hw.App, spark_node: Node, tmp_path: Path) -> None:
    assert isinstance(spark_node.pool, SparkPool)
    found = twin_results_of(app, 700, spark_node.pool.session, tmp_path)["results"]
    expected = LinearRoad(made(app, 0, 700))
    if isinstance(app, TollNotification):
        assert tolls(found) == sorted(expected.tolls)
    else:
        assert warnings(found) == sorted(expected.warnings)
        assert found
