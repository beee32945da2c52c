"""A histogram of latencies is small, can be added up, and is right to within two per cent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.histogram import Histogram

SHARES = (0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0)


def histogram_of(durations: list[int]) -> Histogram:
    """Count these durations."""
    counted = Histogram()
    for duration in durations:
        counted.add(duration)
    return counted


@given(durations=st.lists(st.integers(1, 10**10), min_size=1, max_size=300), share=st.sampled_from(SHARES))
def test_a_percentile_is_that_of_the_data_to_within_two_per_cent(durations: list[int], share: float) -> None:
    """Whatever the data."""
    exact = float(np.percentile(durations, share * 100, method="inverted_cdf"))
    assert histogram_of(durations).percentile(share) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_percentile_of_many_latencies_is_that_of_numpy(share: float) -> None:
    """Skewed, as latencies are."""
    durations = np.random.default_rng(1).lognormal(8, 1.5, 20_000).astype(int) + 1
    exact = float(np.percentile(durations, share * 100))
    assert histogram_of(durations.tolist()).percentile(share) == pytest.approx(exact, rel=0.02)


def test_an_empty_histogram_has_no_percentiles() -> None:
    """Rather than a zero that looks like a fast system."""
    assert Histogram().percentile(0.99) is None


@pytest.mark.parametrize("duration", [-5, 0, 1])
def test_what_took_no_time_counts_as_a_microsecond(duration: int) -> None:
    """Clocks may step back."""
    assert histogram_of([duration]).percentile(0.5) == pytest.approx(1, rel=0.02)


@given(one=st.lists(st.integers(1, 10**6), max_size=50), other=st.lists(st.integers(1, 10**6), max_size=50))
def test_merged_histograms_are_the_histogram_of_all(one: list[int], other: list[int]) -> None:
    """So every worker can count by itself."""
    merged, together = histogram_of(one), histogram_of(one + other)
    merged.merge(histogram_of(other))
    assert merged.total == together.total == len(one) + len(other)
    assert [merged.percentile(share) for share in SHARES] == [together.percentile(share) for share in SHARES]


@given(before=st.lists(st.integers(1, 10**6), max_size=50), after=st.lists(st.integers(1, 10**6), max_size=50))
def test_what_was_counted_since_a_copy_is_the_histogram_of_that(before: list[int], after: list[int]) -> None:
    """So a warm-up can be left out."""
    counted, copy, later = histogram_of(before + after), histogram_of(before), histogram_of(after)
    assert counted.since(copy).total == len(after)
    assert [counted.since(copy).percentile(share) for share in SHARES] == [later.percentile(share) for share in SHARES]


@given(durations=st.lists(st.integers(1, 10**10), min_size=1, max_size=100))
def test_the_mean_is_that_of_the_data_to_within_two_per_cent(durations: list[int]) -> None:
    """Whatever the data; of nothing there is none."""
    assert histogram_of(durations).mean() == pytest.approx(sum(durations) / len(durations), rel=0.02)
    assert Histogram().mean() is None


def test_a_duration_can_be_counted_many_times_at_once() -> None:
    """A stamp stands for so many rows."""
    counted = Histogram()
    counted.add(10, 99)
    counted.add(1_000_000)
    assert counted.total == 100
    assert counted.percentile(0.99) == pytest.approx(10, rel=0.02)
    assert counted.percentile(1.0) == pytest.approx(1_000_000, rel=0.02)
