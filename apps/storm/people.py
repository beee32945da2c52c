"""What two spouts of Storm's join examples say of people, in one stream: the gender of each, and the age of each."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chance import uniform

PEOPLE_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("id", pa.int64()),
        ("gender", pa.string()),
        ("age", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)

_BEGAN_US: Final = 1_767_225_600_000_000  # 2026-01-01
_STEP_US: Final = 70_000  # a round takes 1.4 s, so that windows of ten seconds part some people's rows
_PEOPLE: Final = 10  # in a round
_LOST: Final = 0.02  # so many of the ids are misread: nothing else comes under them
_MISREAD: Final = -1


@dataclass(frozen=True)
class People:
    """Rounds of ten people: first their genders in order of id, then their ages in the opposite order, as in Storm."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        numbers = np.arange(first, first + count)
        rounds, turn = np.divmod(numbers, 2 * _PEOPLE)
        tells_gender = turn < _PEOPLE
        person = np.where(tells_gender, turn, 2 * _PEOPLE - 1 - turn)
        misread = uniform(numbers, self.seed) < _LOST
        gender = np.where(person % 2 == 0, "male", "female")
        columns = [
            pa.array(np.where(tells_gender, "gender", "age")),
            pa.array(np.where(misread, _MISREAD - numbers, rounds * _PEOPLE + person)),
            pa.array(gender, mask=~tells_gender),
            pa.array(person + 20, mask=tells_gender),
            pa.array(_BEGAN_US + numbers * _STEP_US),
        ]
        return pa.record_batch(
            [pc.cast(column, field.type) for column, field in zip(columns, PEOPLE_SCHEMA, strict=True)],
            schema=PEOPLE_SCHEMA,
        )
