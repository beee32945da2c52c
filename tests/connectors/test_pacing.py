"""When rows leave, by a clock that the test moves."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors import read
from headwater.dataflow.connectors import Ended, Idle
from headwater.dataflow.stream import Stream
from headwater.model.errors import SchemaMismatch
from tests.connectors.polls import polled, rest_of, sent_at, spec_of

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


def counting(rate: float | None, rows: int | None = None) -> Stream:
    """Return numbered rows."""
    return read.generator(lambda first, count: {"row": list(range(first, first + count))}, rate=rate, rows=rows)


def test_without_a_pace_everything_leaves_at_once_and_nothing_is_due() -> None:
    """Up to what the engine takes."""
    assert sent_at(spec_of(counting(None)).open(None), NOON, rows_max=77) == (77, None)


def test_at_a_low_rate_each_row_leaves_when_it_is_due() -> None:
    """Two rows a second: one at once, the next half a second later, and never two together."""
    reader = spec_of(counting(2)).open(None)
    assert sent_at(reader, NOON) == (1, NOON)
    assert sent_at(reader, NOON) == (0, NOON + SECOND // 2)
    assert sent_at(reader, NOON + SECOND // 2 - 1) == (0, NOON + SECOND // 2)
    assert sent_at(reader, NOON + SECOND // 2) == (1, NOON + SECOND // 2)


def test_a_source_that_fell_behind_sends_everything_due_up_to_the_limit() -> None:
    """And says when the first of them should have left."""
    reader = spec_of(counting(1000)).open(None)
    assert sent_at(reader, NOON) == (1, NOON)
    assert sent_at(reader, NOON + SECOND, rows_max=600) == (600, NOON + 1_000)
    assert sent_at(reader, NOON + SECOND, rows_max=600) == (400, NOON + 601_000)
    assert sent_at(reader, NOON + SECOND) == (0, NOON + SECOND + 1_000)


def test_a_restart_goes_on_at_the_rate_without_a_burst() -> None:
    """The time it was down is not made up for."""
    spec = spec_of(counting(1000))
    position = polled(spec.open(None), now_us=NOON).position
    reader = spec.open(position)
    assert sent_at(reader, NOON + 3600 * SECOND) == (1, NOON + 3600 * SECOND)
    assert sent_at(reader, NOON + 3601 * SECOND, rows_max=10_000) == (1000, NOON + 3600 * SECOND + 1_000)


def test_a_followed_file_that_ran_dry_does_not_burst_when_rows_come(tmp_path: Path) -> None:
    """The pace is taken up from there."""
    path = tmp_path / "log"
    path.write_text("one\n")
    reader = spec_of(read.text(path, follow=True, rate=1)).open(None)
    assert sent_at(reader, NOON) == (1, NOON)
    sent_at(reader, NOON + 60 * SECOND)
    path.write_text("one\ntwo\nthree\n")
    assert sent_at(reader, NOON + 60 * SECOND) == (1, NOON + 60 * SECOND)
    assert sent_at(reader, NOON + 60 * SECOND) == (0, NOON + 61 * SECOND)


@given(rate=st.floats(0.01, 1e6), gaps=st.lists(st.integers(0, 5 * SECOND), max_size=20))
def test_no_row_leaves_early_and_none_that_is_due_stays(rate: float, gaps: list[int]) -> None:
    """At any rate, however irregularly the engine asks."""
    reader = spec_of(counting(rate, rows=20_000)).open(None)
    now, sent = NOON, 0
    for gap in gaps:
        now += gap
        while not isinstance(answer := reader.poll(10_000, now), Idle | Ended):
            sent += polled_rows(answer)
        if isinstance(answer, Ended):
            return
        assert answer.until_us > now
        start = NOON + (gaps[0] if gaps else 0)
        assert sent == pytest.approx((now - start) * rate / SECOND + 1, abs=1.01)


def polled_rows(answer: object) -> int:
    """Return how many rows an answer has."""
    return int(answer.batch.num_rows)  # type: ignore[attr-defined]


TIMES = {
    "timestamp": pa.array([0, 2000, 2000, 5000], pa.timestamp("ms", "UTC")),
    "seconds": pa.array([1_700_000_000, 1_700_000_002, 1_700_000_002, 1_700_000_005]),
    "milliseconds": pa.array([1_700_000_000_000, 1_700_000_002_000, 1_700_000_002_000, 1_700_000_005_000]),
    "microseconds": pa.array([NOON, NOON + 2 * SECOND, NOON + 2 * SECOND, NOON + 5 * SECOND]),
    "fractions": pa.array([1.7e9, 1.7e9 + 2, 1.7e9 + 2, 1.7e9 + 5]),
    "text": pa.array(["2015-01-01T00:00:00Z", "2015-01-01T00:00:02Z", "2015-01-01T00:00:02Z", "2015-01-01T00:00:05Z"]),
    "local text": pa.array(
        ["2015-01-01 00:00:00", "2015-01-01 00:00:02", "2015-01-01 00:00:02", "2015-01-01 00:00:05"]
    ),
}


@pytest.mark.parametrize("form", TIMES)
def test_recorded_times_are_replayed_as_they_were(tmp_path: Path, form: str) -> None:
    """In whatever form the time is written; ten times as fast here."""
    pa.parquet.write_table(pa.table({"t": TIMES[form]}), tmp_path / "x.parquet")
    reader = spec_of(read.parquet(tmp_path / "x.parquet", time_column="t", speed=10)).open(None)
    assert sent_at(reader, NOON) == (1, NOON)
    assert sent_at(reader, NOON) == (0, NOON + SECOND // 5)
    assert sent_at(reader, NOON + SECOND // 5) == (2, NOON + SECOND // 5)
    assert sent_at(reader, NOON + SECOND) == (1, NOON + SECOND // 2)


def test_a_time_that_goes_backwards_or_is_missing_is_due_with_the_row_before(tmp_path: Path) -> None:
    """Rows never overtake one another."""
    path = tmp_path / "x.csv"
    path.write_text("t,x\n100,a\n103,b\n101,c\n,d\n104,e\n")
    reader = spec_of(read.csv(path, time_column="t")).open(None)
    assert sent_at(reader, NOON) == (1, NOON)
    assert sent_at(reader, NOON + 3 * SECOND) == (3, NOON + 3 * SECOND)
    assert sent_at(reader, NOON + 3 * SECOND) == (0, NOON + 4 * SECOND)


def test_a_replay_that_is_opened_again_starts_at_once(tmp_path: Path) -> None:
    """From the recorded time it had reached."""
    path = tmp_path / "x.csv"
    path.write_text("t\n100\n200\n201\n")
    spec = spec_of(read.csv(path, time_column="t"))
    position = polled(spec.open(None), now_us=NOON).position
    reader = spec.open(position)
    assert sent_at(reader, NOON + 7) == (1, NOON + 7)
    assert sent_at(reader, NOON + 7) == (0, NOON + 7 + SECOND)


def test_a_looped_replay_goes_on_from_its_last_row(tmp_path: Path) -> None:
    """Each turn keeps its gaps."""
    path = tmp_path / "x.csv"
    path.write_text("t\n100\n101\n")
    reader = spec_of(read.csv(path, time_column="t", loop=True)).open(None)
    assert sent_at(reader, NOON) == (1, NOON)
    assert sent_at(reader, NOON + SECOND) == (1, NOON + SECOND)
    assert sent_at(reader, NOON + SECOND) == (1, NOON + SECOND)
    assert sent_at(reader, NOON + SECOND) == (0, NOON + 2 * SECOND)


@pytest.mark.parametrize(
    ("column", "sentence"), [("when", "there is no time column 'when', only: t"), ("t", "something that is not a time")]
)
def test_a_time_column_that_is_none_is_refused(tmp_path: Path, column: str, sentence: str) -> None:
    """The file and the column are named."""
    path = tmp_path / "x.csv"
    path.write_text("t\nyesterday\n")
    with pytest.raises(SchemaMismatch, match=sentence):
        rest_of(spec_of(read.csv(path, time_column=column)).open(None))
