"""When a lost Spark is tried again, and what is told of it meanwhile."""

from itertools import pairwise

from headwater.spark.outage import REASON_CHARS_MAX, Backoff, SparkOutage


def pauses(outage: SparkOutage, tries: int, now_s: float) -> tuple[list[float], float]:
    """The pauses before so many tries that fail, each after a second; and what time it is then."""
    waited = []
    for number in range(tries):
        waited.append(outage.wait_s(now_s))
        now_s += waited[-1]
        outage.trying()
        now_s += 1
        outage.failed(f"failure {number}", now_s)
    return waited, now_s


def test_a_lost_spark_is_tried_at_once_then_ever_less_often_and_never_given_up() -> None:
    outage = SparkOutage()
    outage.back(0)
    outage.lost("killed", 100)
    waited, _ = pauses(outage, 200, 100)
    assert waited[:7] == [0, 1, 2, 4, 8, 16, 30]
    assert set(waited[7:]) == {30}


def test_a_spark_that_does_not_last_is_no_success() -> None:
    """Pauses grow on from where they were; one that ran for long is started again at once."""
    outage = SparkOutage()
    outage.back(0)
    now_s, waited = 100.0, []
    for _ in range(8):
        outage.lost("killed", now_s)
        waited.append(outage.wait_s(now_s))
        now_s += waited[-1]
        outage.trying()
        outage.back(now_s)
        now_s += 3
    assert waited == [0, 1, 2, 4, 8, 16, 30, 30]
    outage.lost("killed", now_s + Backoff().steady_s)
    assert outage.wait_s(now_s + Backoff().steady_s) == 0


def test_what_is_told_says_how_often_it_was_tried_why_it_failed_and_when_it_is_tried_next() -> None:
    outage = SparkOutage()
    outage.back(0)
    assert outage.told(50) == ""
    outage.lost("its JVM was killed", 100)
    assert (
        outage.told(100)
        == "Spark was lost (its JVM was killed), and is started again; rows and state wait (tried in 0 s)"
    )
    outage.trying()
    assert outage.told(101).endswith("(tried once, now)")
    outage.failed("no memory", 101)
    outage.trying()
    outage.failed("no\nmemory", 102)
    assert outage.told(102.4) == (
        "Spark was lost (its JVM was killed), and could not be started again: no memory; rows and state wait "
        "(tried 2 times, again in 2 s)"
    )
    outage.trying()
    outage.back(110)
    assert outage.told(111) == ""
    assert outage.history(110) == "Spark was lost (its JVM was killed) and is back after 10 s (tried 3 times)"


def test_a_page_of_what_spark_says_becomes_a_line() -> None:
    outage = SparkOutage()
    outage.lost("page\n" * 1_000, 1)
    assert len(outage.told(1)) < REASON_CHARS_MAX + 200
    assert "\n" not in outage.told(1)


def test_pauses_never_shrink_while_nothing_works() -> None:
    backoff = Backoff(first_s=0.5, longest_s=7)
    waits = [backoff.pause_s(failures) for failures in range(100)]
    assert all(before <= after for before, after in pairwise(waits))
    assert waits[-1] == 7
