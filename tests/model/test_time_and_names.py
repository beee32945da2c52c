"""Durations as people write them, and names that can stand in keys, files and labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import ConfigError, FlowError, UnknownColumn, UserCodeError
from headwater.model.ids import NAME_CHARS_MAX, AppId, InstanceId, checked_name
from headwater.model.time import MICROSECOND, SECOND, milliseconds, parse_duration, seconds


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [
        ("30s", 30_000_000),
        ("250ms", 250_000),
        ("1.5 min", 90_000_000),
        ("2m", 120_000_000),
        ("1h", 3_600_000_000),
        ("7us", 7),
        ("0", 0),
        ("0.5", 500_000),
        (" 12 ", 12_000_000),
        ("0.0000004s", 0),
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("interval 2 days", 172_800_000_000),
        ("1 Second", 1_000_000),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str, microseconds: int) -> None:
    """A bare number is seconds."""
    assert parse_duration(written) == microseconds


@pytest.mark.parametrize("written", ["", "s", "-1s", "1 month", "10 5", "1,5s", "1e3", "30 s s", "nan", "1.s"])
def test_what_is_no_duration_is_refused_with_an_example(written: str) -> None:
    """One sentence."""
    with pytest.raises(ConfigError, match="is not a duration; write it like 30s, 250ms, 2min, 1h or '10 minutes'"):
        parse_duration(written)


@given(st.integers(0, 10**12))
def test_a_whole_number_of_microseconds_is_read_exactly(count: int) -> None:
    """Up to eleven days."""
    assert parse_duration(f"{count}us") == count


def test_durations_are_whole_microseconds() -> None:
    """Rounded, never cut."""
    assert (seconds(1.0000006), milliseconds(0.0006), seconds(0.1) * 10) == (SECOND + MICROSECOND, 1, SECOND)


@pytest.mark.parametrize("name", ["a", "A_1", "map-2", "v1.2", "_x", "0", "x" * NAME_CHARS_MAX])
def test_a_plain_name_is_taken(name: str) -> None:
    """As it is."""
    assert checked_name("operator", name) == name


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", ".a", "a/b", "a\n", "ä", "x" * (NAME_CHARS_MAX + 1)])
def test_a_name_that_could_do_harm_is_refused(name: str) -> None:
    """It stands in file names and in metric labels."""
    with pytest.raises(FlowError, match="operator name"):
        checked_name("operator", name)


def test_instances_are_ordered_by_app_and_number() -> None:
    """And are short in logs."""
    unordered = [InstanceId(AppId(2), 0), InstanceId(AppId(1), 9), InstanceId(AppId(1), 10)]
    assert [str(one) for one in sorted(unordered)] == ["1/9", "1/10", "2/0"]


def test_errors_keep_their_facts_apart() -> None:
    """And say them all in one text."""
    column = UnknownColumn("pick", "x", ["b", "a"])
    assert str(column) == "operator 'pick' needs column 'x', but its input has only: a, b"
    assert str(UnknownColumn("pick", "x", [])).endswith("only: nothing")
    failure = UserCodeError("f", "op", "ValueError: no", "flow.py:3", "{}")
    assert (failure.operator, failure.line) == ("op", "flow.py:3")
    assert str(failure) == "flow 'f', operator 'op': ValueError: no\n  at  flow.py:3\n  row {}"
