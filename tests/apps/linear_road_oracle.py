"""Linear Road in plain Python, report by report in order of time, written from the benchmark's rules.

A minute is counted from zero here. All of an earlier minute is known before anything of a later one is answered.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

Place = tuple[int, int, int, int, int]  # expressway, lane, direction, segment, position


class Report(NamedTuple):
    """A position report."""

    time: int
    vid: int
    spd: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int

    @property
    def place(self) -> Place:
        return self.xway, self.lane, self.dir, self.seg, self.pos


class LinearRoad:
    """Everything that is known of the roads."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Go through the records, and keep what comes out."""
        self.tolls: list[tuple[int, int, int, int, int]] = []  # time, vid, type, average speed, toll
        self.warnings: list[tuple[int, int, int, int, int, int]] = []  # time, vid, type, expressway, segment, direction
        self.cars: dict[int, list[Report]] = defaultdict(list)  # the reports of each trip
        self.speeds: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)  # by road, segment and minute
        self.present: dict[tuple[int, int, int, int], set[int]] = defaultdict(set)
        self.stopped: dict[int, Place] = {}
        self.accidents: dict[tuple[int, int, int], tuple[set[int], int]] = {}  # cars, and the minute it happened
        self.cleared: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)  # past ones: from, until
        records = [[int(field) for field in line.split(",")] for line in lines]
        seconds: dict[int, list[Report]] = defaultdict(list)
        for record in records:
            if record[0] == 0:
                seconds[record[1]].append(Report(*record[1:9]))
        for time in sorted(seconds):
            self._second(seconds[time])

    def _second(self, reports: list[Report]) -> None:
        """Within a second: who leaves, then who stops, by number; then everyone is answered."""
        counted = []
        for report in reports:
            trip = self.cars[report.vid]
            if trip and trip[-1].lane == 4:
                if report.lane != 0:
                    continue
                trip.clear()
            trip.append(report)
            counted.append(report)
        for report in sorted(counted, key=lambda report: report.vid):
            self._leave(report)
        for report in sorted(counted, key=lambda report: report.vid):
            self._stop(report)
        for report in counted:
            self._answer(report)
            segment = (report.xway, report.dir, report.seg, report.time // 60)
            self.speeds[segment].append(report.spd)
            self.present[segment].add(report.vid)

    def _leave(self, report: Report) -> None:
        was = self.stopped.get(report.vid)
        if was is None or was == report.place:
            return
        del self.stopped[report.vid]
        segment = (was[0], was[2], was[3])
        if segment in self.accidents and report.vid in self.accidents[segment][0]:
            self.cleared[segment].append((self.accidents.pop(segment)[1], report.time // 60))

    def _stop(self, report: Report) -> None:
        last = [one.place for one in self.cars[report.vid][-4:]]
        if len(last) < 4 or set(last) != {report.place} or report.vid in self.stopped:
            return
        others = [vid for vid, place in self.stopped.items() if place == report.place]
        self.stopped[report.vid] = report.place
        segment = (report.xway, report.dir, report.seg)
        if others and segment not in self.accidents:
            self.accidents[segment] = ({others[0], report.vid}, report.time // 60)

    def _answer(self, report: Report) -> None:
        trip = self.cars[report.vid]
        before = [(one.xway, one.dir, one.seg) for one in trip[-2:-1]]
        if report.lane == 4 or before == [(report.xway, report.dir, report.seg)]:
            return
        minute = report.time // 60
        accident = self._accident_ahead(report, minute)
        if accident is not None:
            self.warnings.append((report.time, report.vid, 1, report.xway, accident, report.dir))
        road = (report.xway, report.dir, report.seg)
        readings = [spd for m in range(minute - 5, minute) for spd in self.speeds.get((*road, m), [])]
        lav = int(sum(readings) / len(readings) + 0.5) if readings else 0
        cars = len(self.present.get((*road, minute - 1), ()))
        toll = 2 * (cars - 50) ** 2 if cars > 50 and lav < 40 and accident is None else 0
        self.tolls.append((report.time, report.vid, 0, lav, toll))

    def _accident_ahead(self, report: Report, minute: int) -> int | None:
        """Return the segment of the nearest accident: known since an earlier minute, not cleared before this one."""
        step = 1 if report.dir == 0 else -1
        for distance in range(5):
            segment = (report.xway, report.dir, report.seg + step * distance)
            spans = list(self.cleared[segment])
            if segment in self.accidents:
                spans.append((self.accidents[segment][1], minute))
            if any(happened < minute <= until for happened, until in spans):
                return segment[2]
        return None
