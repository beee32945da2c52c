"""Windows and aggregates as a flow writes them: PySpark's names and defaults, and sentences for what makes no sense."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headwater.dataflow import functions as F
from headwater.model.errors import FlowError
from headwater.operators.windows.window_specs import Aggregate, CountWindow, SessionWindow, TimeWindow

MINUTE = 60_000_000


def anything(value: Any) -> Any:
    """Return a value of which the type checker knows nothing, as a flow without annotations would give it."""
    return value


def refusal(build: Callable[[], Any]) -> str:
    """Return the sentence with which something is refused."""
    with pytest.raises(FlowError) as refused:
        build()
    return str(refused.value)


def test_windows_are_written_as_in_pyspark() -> None:
    """Durations as text or as timedelta; a slide and a start if they are wanted."""
    assert F.window("ts", "10 minutes") == TimeWindow("ts", 10 * MINUTE, 10 * MINUTE)
    assert F.window("ts", "10 minutes", "5 minutes") == TimeWindow("ts", 10 * MINUTE, 5 * MINUTE)
    assert F.window("ts", timedelta(hours=1), None, "15 minutes") == TimeWindow(
        "ts", 60 * MINUTE, 60 * MINUTE, 15 * MINUTE
    )
    assert F.window("ts", "1 hour", start="-1 minute").offset_us == -MINUTE
    assert F.session_window("ts", "30 seconds") == SessionWindow("ts", MINUTE // 2)
    assert F.count_window(10) == CountWindow(10, 10)
    assert F.count_window(10, 5) == CountWindow(10, 5)


def test_windows_by_the_clock_are_asked_for_by_name() -> None:
    """No column is named, and none by mistake."""
    assert F.window(F.PROCESSING_TIME, "10 seconds").time is None
    assert F.session_window(F.PROCESSING_TIME, "10 seconds").time is None
    assert "PROCESSING_TIME, not None" in refusal(lambda: F.window(anything(None), "10 seconds"))


@pytest.mark.parametrize(
    ("aggregate", "function", "name"),
    [
        (F.count(), "count", "count"),
        (F.count("*"), "count", "count"),
        (F.count("x"), "count", "count(x)"),
        (F.sum("x"), "sum", "sum(x)"),
        (F.min("x"), "min", "min(x)"),
        (F.max("x"), "max", "max(x)"),
        (F.avg("x"), "avg", "avg(x)"),
        (F.mean("x"), "avg", "avg(x)"),
        (F.variance("x"), "var_samp", "variance(x)"),
        (F.var_samp("x"), "var_samp", "var_samp(x)"),
        (F.var_pop("x"), "var_pop", "var_pop(x)"),
        (F.stddev("x"), "stddev_samp", "stddev(x)"),
        (F.stddev_samp("x"), "stddev_samp", "stddev_samp(x)"),
        (F.stddev_pop("x"), "stddev_pop", "stddev_pop(x)"),
        (F.first("x"), "first", "first(x)"),
        (F.last("x", ignorenulls=True), "last", "last(x)"),
        (F.approx_count_distinct("x"), "approx_count_distinct", "approx_count_distinct(x)"),
        (F.approx_percentile("x", 0.5), "approx_percentile", "approx_percentile(x, 0.5, 10000)"),
        (
            F.percentile_approx("x", [0.25, 0.5], 100),
            "approx_percentile",
            "percentile_approx(x, array(0.25, 0.5), 100)",
        ),
        (F.collect_list("x"), "collect_list", "collect_list(x)"),
        (F.collect_set("x"), "collect_set", "collect_set(x)"),
    ],
)
def test_aggregates_are_called_as_pyspark_calls_them(aggregate: Aggregate, function: str, name: str) -> None:
    """Until they are given another name."""
    assert (aggregate.function, aggregate.name) == (function, name)
    assert aggregate.alias("other").name == "other"
    assert aggregate.alias("other").options == aggregate.options


def test_options_are_kept_as_plain_data() -> None:
    """So that a flow can be compared, pickled and told to Spark."""
    assert F.first("x", True).option == {"ignorenulls": True}
    assert F.approx_count_distinct("x").option == {"rsd": 0.05}
    assert F.approx_count_distinct("x", 0.01).option == {"rsd": 0.01}
    assert F.approx_percentile("x", 0.5).option == {"percentage": 0.5, "accuracy": 10_000}
    assert F.approx_percentile("x", (0, 1)).option["percentage"] == (0.0, 1.0)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: F.window("ts", "0 seconds"), "the size of a window must be above zero"),
        (lambda: F.window("ts", timedelta(0)), "the size of a window must be above zero"),
        (lambda: F.window("ts", "soon"), "the size of a window is wrong: 'soon' is not a duration"),
        (lambda: F.window("ts", anything(10)), "the size of a window is wrong: 10 is not a duration"),
        (lambda: F.window("ts", "1 month"), "'1 month' is not a duration"),
        (lambda: F.window("ts", "10 s", "20 s"), "the slide of a window must not exceed its size"),
        (lambda: F.window("ts", "10 s", "5 s", "5 s"), "the start of a window must be less than its slide"),
        (lambda: F.window("ts", "10 s", start="soon"), "the start of a window is wrong"),
        (lambda: F.window("", "10 s"), "a window takes the name of a column of time"),
        (lambda: F.session_window("ts", "-1 s"), "the gap of a session window is wrong"),
        (lambda: F.count_window(0), "the size of a count window is a whole number of rows above zero, not 0"),
        (lambda: F.count_window(True), "not True"),
        (lambda: F.count_window(anything(2.5)), "not 2.5"),
        (lambda: F.count_window(5, 6), "the slide of a count window must not exceed its size"),
        (lambda: F.sum(""), "sum takes the name of a column, not ''"),
        (lambda: F.sum("*"), "only count counts whole rows"),
        (lambda: F.avg(anything(3)), "avg takes the name of a column, not 3"),
        (lambda: F.approx_count_distinct("x", 0.5), "rsd=0.5 is no deviation"),
        (lambda: F.approx_count_distinct("x", 0), "rsd=0 is no deviation"),
        (lambda: F.approx_percentile("x", 1.5), "percentage=1.5 is none"),
        (lambda: F.approx_percentile("x", []), "percentage=[] is none"),
        (lambda: F.approx_percentile("x", anything([0.5, "half"])), "is none"),
        (lambda: F.approx_percentile("x", True), "percentage=True is none"),
        (lambda: F.approx_percentile("x", 0.5, 0), "accuracy=0 is none"),
        (lambda: F.percentile_approx("x", 2), "percentile_approx takes a number from 0 to 1"),
        (lambda: Aggregate("median", "x", "m"), "there is no aggregate 'median'"),
        (lambda: Aggregate("sum", None, "m"), "the aggregate sum needs a column"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(build: Callable[[], Any], said: str) -> None:
    """Where it is written."""
    sentence = refusal(build)
    assert said in sentence
    assert "\n" not in sentence


def test_every_function_is_exported_and_says_what_it_does() -> None:
    """A public module has nothing else in it."""
    made = {name for name, one in vars(F).items() if inspect.isfunction(one) and not name.startswith("_")}
    ours = {name for name in made if vars(F)[name].__module__ == F.__name__}
    assert ours | {"PROCESSING_TIME"} == set(F.__all__)
    assert all(inspect.getdoc(vars(F)[name]) for name in ours)
