"""Aggregates: what comes out is what plain Python makes of all the values, however they were cut and combined."""

import math
import statistics
from collections.abc import Callable, Sequence
from datetime import date, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators.functions import WrongResult
from headwater.operators.windows.windows import Aggregate, TimeWindow, WindowAggregate
from tests.operators.timed_bench import TimedBench
from tests.operators.window_stories import at, shown

Values = list[Any]
EXACT = Context(prec=200, rounding=ROUND_HALF_UP)

NUMBERS: dict[pa.DataType, Any] = {
    pa.int64(): st.integers(-(1 << 40), 1 << 40),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, (1 << 32) - 1),
    pa.float64(): st.sampled_from([0.0, 1.5, -2.25, 1e9, math.nan]),
    pa.float32(): st.sampled_from([0.0, 1.5, -2.25]),
}
DECIMALS: dict[pa.DataType, Any] = {
    pa.decimal128(10, 2): st.decimals("-99999999.99", "99999999.99", places=2),
    pa.decimal128(38, 10): st.decimals("-1e20", "1e20", places=10),
}
OTHERS: dict[pa.DataType, Any] = {
    pa.string(): st.sampled_from(["", "a", "b", "ab", "ключ", "𝄞", "\uffff"]),
    pa.binary(): st.binary(max_size=3),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.time64("us"): st.times().map(lambda clock: clock.replace(fold=0)),
    pa.duration("us"): st.timedeltas(timedelta(-1000), timedelta(1000)),
    pa.timestamp("us", "UTC"): st.integers(-(10**15), 10**15).map(at),
    pa.timestamp("us"): st.integers(-(10**15), 10**15).map(lambda us: at(us).replace(tzinfo=None)),
}
KINDS = NUMBERS | DECIMALS | OTHERS


def columns(kinds: dict[pa.DataType, Any]) -> Any:
    """Return a strategy for a type and batches of values of it, some of them null."""
    return st.sampled_from(list(kinds)).flatmap(
        lambda kind: st.tuples(
            st.just(kind),
            st.lists(st.lists(st.none() | kinds[kind] | kinds[kind], min_size=1, max_size=6), min_size=1, max_size=5),
        )
    )


def computed(kind: pa.DataType, batches: Sequence[Values], *aggregates: Aggregate) -> dict[str, Any]:
    """Return what windows make of batches of values.

    The values come one each in the first microseconds, over and over. A tumbling window takes all of them into one
    cell, a sliding one has a cell for each microsecond and combines them: both must say the same.
    """
    made = []
    for window in (TimeWindow("t", 4, 4), TimeWindow("t", 4, 1)):
        operator = WindowAggregate(key_columns=("k",), window=window, aggregates=aggregates)
        bench = TimedBench(operator)
        for values in batches:
            bench.rows(_rows(kind, values))
        made += [one for one in bench.end() if one["window"]["start"] == at(0)]
    assert len(made) == 2
    return {aggregate.name: (made[0][aggregate.name], made[1][aggregate.name]) for aggregate in aggregates}


def _rows(kind: pa.DataType, values: Values) -> pa.RecordBatch:
    times = pa.array([at(nth % 4) for nth in range(len(values))], pa.timestamp("us", "UTC"))
    return pa.record_batch([pa.array(["a"] * len(values)), times, pa.array(values, kind)], names=["k", "t", "v"])


def flat(batches: Sequence[Values]) -> Values:
    """Return all values in order of arrival, without nulls."""
    return [value for values in batches for value in values if value is not None]


def order(value: Any) -> Any:
    """Return what values are ordered by: NaN is the largest number."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value


@given(columns(KINDS))
@settings(max_examples=150, deadline=None)
def test_count_min_max_first_last_and_collect_of_any_type(given_column: tuple[pa.DataType, list[Values]]) -> None:
    """Nulls count in `count(*)`, `first` and `last` only; NaN is larger than any number."""
    kind, batches = given_column
    names = ("count", "min", "max", "first", "last", "collect_list", "collect_set")
    ignoring = (("ignorenulls", True),)
    made = computed(
        kind,
        batches,
        Aggregate("count", None, "rows"),
        *(Aggregate(name, "v", name) for name in names),
        Aggregate("first", "v", "first value", ignoring),
        Aggregate("last", "v", "last value", ignoring),
    )
    every, there = [value for values in batches for value in values], flat(batches)
    wanted = {
        "rows": len(every),
        "count": len(there),
        "min": min(there, key=order, default=None),
        "max": max(there, key=order, default=None),
        "first": every[0],
        "last": every[-1],
        "first value": next(iter(there), None),
        "last value": next(iter(reversed(there)), None),
        "collect_list": there,
        "collect_set": [one for nth, one in enumerate(there) if shown(one) not in map(shown, there[:nth])],
    }
    for name, value in wanted.items():
        assert shown(made[name]) == shown((value, value)), name


@given(columns(NUMBERS))
@settings(max_examples=150, deadline=None)
def test_sums_means_and_variances_of_numbers(given_column: tuple[pa.DataType, list[Values]]) -> None:
    """Whole numbers are summed exactly; what is divided is a double; one value alone has no sample variance."""
    kind, batches = given_column
    names = ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop")
    made = computed(kind, batches, *(Aggregate(name, "v", name) for name in names))
    for name, wanted in _statistics(flat(batches)).items():
        for value in made[name]:
            if wanted is None or (name == "sum" and pa.types.is_integer(kind)):
                assert value == wanted, name
            else:
                assert value == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True), name


def _statistics(values: Values) -> dict[str, Any]:
    if any(value != value for value in values):
        lone = len(values) < 2
        nan = math.nan
        return {"sum": nan, "avg": nan, "var_pop": nan, "stddev_pop": nan, "var_samp": None if lone else nan}
    if not values:
        return dict.fromkeys(("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"))
    exact = [Fraction(value) for value in values]
    middle = sum(exact) / len(exact)
    apart = sum((value - middle) ** 2 for value in exact)
    var_samp = float(apart / (len(exact) - 1)) if len(exact) > 1 else None
    return {
        "sum": sum(values),
        "avg": float(middle),
        "var_pop": float(apart / len(exact)),
        "stddev_pop": math.sqrt(apart / len(exact)),
        "var_samp": var_samp,
        "stddev_samp": None if var_samp is None else math.sqrt(var_samp),
    }


@given(columns(DECIMALS))
@settings(max_examples=80, deadline=None)
def test_sums_and_means_of_decimals_are_exact(given_column: tuple[pa.DataType, list[Values]]) -> None:
    """To four more places than the values have, halves up, as Spark does it."""
    kind, batches = given_column
    made = computed(kind, batches, Aggregate("sum", "v", "sum"), Aggregate("avg", "v", "avg"))
    values = flat(batches)
    total = None if not values else Decimal(0)
    for value in values:
        assert total is not None
        total = EXACT.add(total, value)
    assert made["sum"] == (total, total)
    places = Decimal(1).scaleb(-(kind.scale + 4))
    mean = None if total is None else EXACT.quantize(EXACT.divide(total, Decimal(len(values))), places)
    assert made["avg"] == (mean, mean)


@given(columns({kind: values for kind, values in KINDS.items() if kind not in DECIMALS}))
@settings(max_examples=60, deadline=None)
def test_few_distinct_values_are_counted_exactly(given_column: tuple[pa.DataType, list[Values]]) -> None:
    """A sketch begins to estimate only when it has many."""
    kind, batches = given_column
    made = computed(kind, batches, Aggregate("approx_count_distinct", "v", "distinct"))
    expected = len({shown(0.0 if value == 0 and isinstance(value, float) else value) for value in flat(batches)})
    assert made["distinct"] == (expected, expected)


@given(
    columns({pa.int64(): NUMBERS[pa.int64()], pa.float64(): NUMBERS[pa.float64()], pa.date32(): OTHERS[pa.date32()]}),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_quantiles_of_few_values_are_exact(given_column: tuple[pa.DataType, list[Values]], parts: list[float]) -> None:
    """The value of that rank, which is one of the values and of their type; one number, or a list."""
    kind, batches = given_column
    made = computed(
        kind,
        batches,
        Aggregate("approx_percentile", "v", "one", (("percentage", parts[0]), ("accuracy", 10_000))),
        Aggregate("approx_percentile", "v", "many", (("percentage", tuple(parts)),)),
    )
    ranked = sorted(value for value in flat(batches) if value == value)
    if not ranked:
        assert made == {"one": (None, None), "many": (None, None)}
        return
    wanted = [ranked[max(math.ceil(part * len(ranked)) - 1, 0)] for part in parts]
    assert made["one"] == (wanted[0], wanted[0])
    assert made["many"] == (wanted, wanted)


def test_sketches_of_many_values_stay_within_their_error() -> None:
    """Five per cent of distinct values, and one in a thousand of ranks, however the values were spread."""
    aggregates = (
        Aggregate("approx_count_distinct", "v", "distinct", (("rsd", 0.05),)),
        Aggregate("approx_percentile", "v", "median", (("percentage", 0.5), ("accuracy", 1_000))),
    )
    numbers = [(nth * 7_919) % 20_011 for nth in range(20_011)]
    made = computed(pa.int64(), [numbers[first : first + 5_000] for first in range(0, 20_011, 5_000)], *aggregates)
    for distinct in made["distinct"]:
        assert distinct == pytest.approx(20_011, rel=0.2)
    for median in made["median"]:
        assert median == pytest.approx(10_005, abs=3 * 20_011 / 1_000)


@pytest.mark.parametrize(
    ("function", "kind", "made"),
    [
        ("count", pa.string(), pa.int64()),
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.decimal128(10, 2), pa.decimal128(20, 2)),
        ("sum", pa.decimal128(35, 2), pa.decimal128(38, 2)),
        ("avg", pa.int64(), pa.float64()),
        ("avg", pa.decimal128(10, 2), pa.decimal128(14, 6)),
        ("min", pa.float32(), pa.float32()),
        ("max", pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        ("first", pa.dictionary(pa.int8(), pa.string()), pa.string()),
        ("last", pa.date32(), pa.date32()),
        ("var_samp", pa.decimal128(10, 2), pa.float64()),
        ("approx_count_distinct", pa.string(), pa.int64()),
        ("collect_list", pa.int32(), pa.list_(pa.int32())),
        ("collect_set", pa.timestamp("s"), pa.list_(pa.timestamp("us"))),
        ("sum", pa.null(), pa.float64()),
        ("max", pa.null(), pa.null()),
    ],
)
def test_results_have_sparks_types(function: str, kind: pa.DataType, made: pa.DataType) -> None:
    """As announced, and as they come out, also of nothing but nulls."""
    operator = WindowAggregate(
        key_columns=("k",), window=TimeWindow("t", 9, 9), aggregates=(Aggregate(function, "v", "made"),)
    )
    rows = pa.record_batch(
        [pa.array(["a"]), pa.array([at(0)], pa.timestamp("us", "UTC")), pa.nulls(1, kind)], names=["k", "t", "v"]
    )
    announced = operator.output_schema([rows.schema])
    assert announced is not None
    assert announced.field("made").type == made
    bench = TimedBench(operator)
    bench.rows(rows)
    bench.watermark_us = 1_000
    outputs = operator.open().advance(bench._moment())
    assert outputs[0] is not None
    assert outputs[0].schema == announced


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("sum", pa.string()),
        ("sum", pa.timestamp("us")),
        ("avg", pa.bool_()),
        ("var_pop", pa.date32()),
        ("max", pa.list_(pa.int64())),
        ("approx_percentile", pa.string()),
        ("approx_count_distinct", pa.struct([("x", pa.int64())])),
    ],
)
def test_what_cannot_be_computed_is_refused_in_a_sentence(function: str, kind: pa.DataType) -> None:
    """With the function, the column and its type."""
    options: Any = (("percentage", 0.5),) if function == "approx_percentile" else ()
    with pytest.raises(WrongResult, match=f"{function} cannot be computed over column 'v', a "):
        computed(kind, [[None]], Aggregate(function, "v", "made", options))


@pytest.mark.parametrize("batches", [[[1 << 62, 1 << 62]], [[1 << 62], [1 << 62]], [[-(1 << 63), -1]]])
def test_a_sum_that_exceeds_64_bits_is_refused_rather_than_wrapped(batches: list[Values]) -> None:
    """In one batch, in two, and where cells are combined."""
    with pytest.raises(WrongResult, match="the sum of column 'v' exceeds 64 bits"):
        computed(pa.int64(), batches, Aggregate("sum", "v", "sum"))


def test_a_sum_that_only_looks_too_large_is_computed() -> None:
    """Large numbers that make up for each other."""
    large = (1 << 63) - 1
    made = computed(pa.int64(), [[large, -large, large], [-large, 5]], Aggregate("sum", "v", "sum"))
    assert made["sum"] == (5, 5)


def test_a_decimal_too_large_for_its_type_is_refused() -> None:
    """Spark's decimals have 38 digits."""
    with pytest.raises(WrongResult, match="exceeds decimal128"):
        computed(pa.decimal128(38, 0), [[Decimal(9) * 10**37] * 2], Aggregate("sum", "v", "sum"))


def test_variance_does_not_lose_what_is_small_beside_what_is_large() -> None:
    """Squares of large numbers would swallow the difference between them."""
    values = [1e9 + n for n in (4.0, 7.0, 13.0, 16.0)]
    made = computed(pa.float64(), [[value] for value in values], Aggregate("var_samp", "v", "variance"))
    assert made["variance"] == pytest.approx((30.0, 30.0))
    assert statistics.variance(values) == pytest.approx(30.0)


def test_collected_values_may_be_of_any_shape() -> None:
    """Lists, structs, and what is inside them."""
    kind = pa.struct([("xs", pa.list_(pa.int64())), ("name", pa.string())])
    values: Values = [{"xs": [1, 2], "name": "a"}, None, {"xs": [], "name": None}, {"xs": [1, 2], "name": "a"}]
    made = computed(kind, [values], Aggregate("collect_list", "v", "all"), Aggregate("collect_set", "v", "different"))
    assert made["all"] == ([values[0], values[2], values[3]],) * 2
    assert made["different"] == ([values[0], values[2]],) * 2


@pytest.mark.parametrize("clock", [time(23, 59), None])
def test_an_aggregate_of_a_time_of_day_is_a_time_of_day(clock: time | None) -> None:
    """Numbers inside, and back."""
    made = computed(pa.time64("us"), [[clock, time(1)], [None]], Aggregate("max", "v", "latest"))
    assert made["latest"] == ((clock or time(1)),) * 2


def test_equal_parts_are_kept_once() -> None:
    """`avg` is a sum and a count, and costs nothing beside them."""
    sizes: list[int] = []
    make: Callable[..., Aggregate] = lambda name: Aggregate(name, "v", name)  # noqa: E731
    for names in (("sum", "count"), ("sum", "count", "avg"), ("count",)):
        operator = WindowAggregate(key_columns=("k",), window=TimeWindow("t", 9, 9), aggregates=tuple(map(make, names)))
        bench = TimedBench(operator)
        bench.rows(_rows(pa.float64(), [1.0]))
        sizes.append(min(len(value) for value in bench.kept.values()))
    assert sizes == [24, 24, 16]
