"""Numbers as people read and write them."""

import pytest

from headwater.console import wording
from headwater.model.errors import ConfigError
from headwater.model.sizes import parse_size


@pytest.mark.parametrize(
    ("written", "count"),
    [("256MB", 256 << 20), ("2 GB", 2 << 30), ("1.5k", 1536), ("4096", 4096), ("7 MiB", 7 << 20), ("10B", 10)],
)
def test_a_size_is_read_as_people_write_it(written: str, count: int) -> None:
    assert parse_size(written) == count


@pytest.mark.parametrize("written", ["", "MB", "-1GB", "1XB", "1 GB 2"])
def test_what_is_no_size_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ConfigError, match="256MB"):
        parse_size(written)


@pytest.mark.parametrize(
    ("per_second", "told"),
    [
        (0, "0"),
        (0.4, "0.4"),
        (9.96, "10"),
        (1234, "1,234"),
        (12_345, "12.3k"),
        (999_499, "999.5k"),
        (2_500_000, "2.5M"),
    ],
)
def test_a_rate_has_at_most_six_characters(per_second: float, told: str) -> None:
    assert wording.rate(per_second) == told
    assert len(told) <= 6


@pytest.mark.parametrize(
    ("value", "told"), [(None, "–"), (0.123, "0.12"), (2.34, "2.3"), (99.96, "100"), (1234.5, "1,234")]
)
def test_milliseconds_keep_the_digits_that_mean_something(value: float | None, told: str) -> None:
    assert wording.milliseconds(value) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.012, "12 ms"), (1.24, "1.2 s"), (59.6, "60 s"), (119.7, "2 min 00 s"), (125, "2 min 05 s")]
)
def test_a_duration_is_told_in_the_unit_that_suits_it(seconds: float, told: str) -> None:
    assert wording.duration(seconds) == told


@pytest.mark.parametrize(("count", "told"), [(0, "0 B"), (999, "999 B"), (25_600, "25 KB"), (2 << 30, "2.0 GB")])
def test_a_size_is_told_in_the_unit_that_suits_it(count: int, told: str) -> None:
    assert wording.size(count) == told
