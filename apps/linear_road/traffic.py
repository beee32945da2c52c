"""Made traffic for Linear Road, with congestion and accidents.

Time goes in rounds of 30 seconds, in which every car on the road sends one report. The traffic grows: a stream begins
with two cars that report each second on an expressway, and every third round there is one more, up to a limit. Each of
these is a place in the round that cars take one after the other: a trip is a car's reports from an entry lane to an
exit lane, and what happens on it follows from the number of the trip alone, so every row is a function of its own
number. As in the first seconds of the original, cars enter with 16 to 34 mph, half of them eastbound.

Three of five cars are commuters who crawl through downtown; as the traffic grows, its segments get crowded and slow,
and tolls begin. One trip in ten is of a car that was on the road before. On each expressway two cars collide every 12
minutes and stand for three to eight minutes. A round ends with a question about an account, in turn of type 2 and 3.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chance import uniform, whole
from .reports import ENTRY, EXIT, FIELD_COUNT, FIELDS, ROAD_FEET, SEGMENT_FEET, Whole

ROUND: Final = 30  # seconds from a report of a car to the next
CARS_AT_START: Final = 2  # that report each second
GROWTH_ROUNDS: Final = 3
FEET_PER_MPH: Final = 44  # that a car goes in a round

COMMUTERS: Final = 0.6
DOWNTOWN: Final = 45 * SEGMENT_FEET  # the segment in which commuters enter
CRASH_ROUNDS: Final = 24  # from one accident on an expressway to the next
CRASH_FEET: Final = 46 * SEGMENT_FEET  # where accidents happen, within four segments
CRASH_CARS: Final = 2

_AT: Final = {name: at for at, name in enumerate(FIELDS)}
_QUESTION: Final = 9  # the field of its number
_DAY: Final = 14


class _Trips(NamedTuple):
    """What is known of reports: whose they are, and how far on its trip the car is."""

    slot: Whole  # which of the places in a round
    number: Whole  # of the trip
    age: Whole  # reports since it began
    last_age: Whole  # of the report from the exit lane


@dataclass(frozen=True)
class Traffic:
    """Makes records from their numbers."""

    expressways: int = 1
    cars_per_second: int = 40
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse roads without cars."""
        if self.expressways < 1 or self.cars_per_second < CARS_AT_START:
            raise ValueError(f"traffic needs an expressway or more, and {CARS_AT_START} cars a second or more")

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make records `first` to `first + count - 1`."""
        turn, place = self._turns(np.arange(first, first + count))
        width = self._width(turn)
        is_question = place == ROUND * width
        second = np.minimum(place // width, ROUND - 1)
        slot = np.where(is_question, 0, place % width) * ROUND + second
        fields = np.full((FIELD_COUNT, count), -1)
        fields[: len(FIELDS)] = self._reports(turn, second, slot)
        questions = np.flatnonzero(is_question)
        fields[:, questions] = self._questions(turn[questions], fields[:, questions])
        return pa.record_batch(
            {"line": pc.binary_join_element_wise(*(pa.array(f).cast(pa.string()) for f in fields), ",")}
        )

    @cached_property
    def _starts(self) -> Whole:
        """The number of the first record of every round, up to the first at the height of the traffic."""
        rounds = np.arange(GROWTH_ROUNDS * (self.cars_per_second - CARS_AT_START) + 1)
        return np.concatenate([[0], np.cumsum(ROUND * self._width(rounds) + 1)])[:-1]

    def _width(self, turn: Whole) -> Whole:
        """Return how many cars report each second of a round, on all expressways."""
        return np.minimum(CARS_AT_START + turn // GROWTH_ROUNDS, self.cars_per_second) * self.expressways

    def _turns(self, rows: Whole) -> tuple[Whole, Whole]:
        """Return the round of every record, and its place in it."""
        starts = self._starts
        beyond, place = np.divmod(rows - starts[-1], ROUND * self.expressways * self.cars_per_second + 1)
        growing = np.searchsorted(starts, rows, side="right") - 1
        is_growing = rows < starts[-1]
        return (
            np.where(is_growing, growing, len(starts) - 1 + beyond),
            np.where(is_growing, rows - starts[growing], place),
        )

    def _reports(self, turn: Whole, second: Whole, slot: Whole) -> Whole:
        trips = self._trips(turn, slot)
        xway = slot // ROUND % self.expressways
        is_crash = (slot // ROUND < self.expressways) & (second < CRASH_CARS)
        seen = np.where(is_crash, self._crash(trips, xway, second), self._drive(trips))
        heading, feet, speed, lane = seen
        speed = np.where(trips.age == 0, 16 + whole(self._named(trips), 19, self.seed, 11), speed)
        lane = np.where(trips.age == 0, ENTRY, np.where(trips.age == trips.last_age, EXIT, lane))
        pos = np.where(heading == 0, feet, ROAD_FEET - 1 - feet)
        time = turn * ROUND + second
        return np.stack(
            [np.zeros_like(time), time, self._vid(trips), speed, xway, lane, heading, pos // SEGMENT_FEET, pos]
        )

    def _trips(self, turn: Whole, slot: Whole) -> _Trips:
        rank = slot // ROUND // self.expressways
        begun = np.maximum(rank - CARS_AT_START + 1, 0) * GROWTH_ROUNDS
        is_crash = (rank == 0) & (slot % ROUND < CRASH_CARS)
        reports = np.where(is_crash, CRASH_ROUNDS, 12 + whole(slot, 20, self.seed, 1))
        number, age = np.divmod(turn - begun, reports)
        return _Trips(slot, number, age, reports - 1)

    def _vid(self, trips: _Trips) -> Whole:
        """Return the number of the car: of one in five odd trips, that of the trip before."""
        comes_back = (trips.number % 2 == 1) & (whole(self._named(trips), 5, self.seed, 2) == 0)
        slots = ROUND * self.cars_per_second * self.expressways
        return np.asarray((trips.number - comes_back) * slots + trips.slot + 1)

    def _drive(self, trips: _Trips) -> Whole:
        """Return heading, feet from the start of the road, speed and lane of cars on an ordinary trip."""
        trip, seed = self._named(trips), self.seed
        commutes = uniform(trips.slot, seed, 3) < COMMUTERS
        speed = np.where(commutes, 10 + whole(trip, 16, seed, 4), 40 + whole(trip, 31, seed, 5))
        length = speed * FEET_PER_MPH * trips.last_age
        entry = np.where(
            commutes, DOWNTOWN + whole(trip, SEGMENT_FEET, seed, 6), whole(trip, ROAD_FEET - length, seed, 7)
        )
        told = np.maximum(speed - 3 + whole(trip * CRASH_ROUNDS + trips.age, 7, seed, 8), 0)
        feet = entry + speed * FEET_PER_MPH * trips.age
        return np.stack([whole(trip, 2, seed, 9), feet, told, 1 + whole(trip, 3, seed, 10)])

    def _crash(self, trips: _Trips, xway: Whole, car: Whole) -> Whole:
        """Return the same of cars that collide: they meet after their first report; the first to leave clears it."""
        crash, seed = trips.number * self.expressways + xway, self.seed
        stands = 6 + whole(crash, 10, seed, 20) + car
        speed = 50
        driven = np.where(trips.age == 0, -1, np.maximum(trips.age - stands, 0))
        feet = CRASH_FEET + whole(crash, 4 * SEGMENT_FEET, seed, 21) + driven * speed * FEET_PER_MPH
        is_moving = driven != 0
        return np.stack([whole(crash, 2, seed, 22), feet, np.where(is_moving, speed, 0), np.full_like(crash, 2)])

    def _named(self, trips: _Trips) -> Whole:
        """Return a number that no other trip has."""
        return trips.number * ROUND * self.cars_per_second * self.expressways + trips.slot

    def _questions(self, turn: Whole, fields: Whole) -> Whole:
        """Turn records of cars into questions about their accounts: the balance, or what a past day cost."""
        asks_day = turn % 2 == 1
        asked = np.full_like(fields, -1)
        asked[_AT["type"]] = np.where(asks_day, 3, 2)
        asked[_AT["time"]], asked[_AT["vid"]] = fields[_AT["time"]], fields[_AT["vid"]]
        asked[_AT["xway"]] = np.where(asks_day, fields[_AT["xway"]], -1)
        asked[_QUESTION] = turn
        asked[_DAY] = np.where(asks_day, 1 + whole(turn, 69, self.seed, 30), -1)
        return asked
