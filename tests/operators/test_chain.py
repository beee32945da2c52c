"""A chain runs batches whole, takes out only the rows that raise, and says where they raised."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.model.errors import UserCodeError
from headwater.operators.chain import DEAD_LETTERS, ROW_CHARS_MAX, OperatorCount, show_row, unite
from tests.operators import users_code
from tests.operators.bench import Bench, Row, keyed, letters, made, stream


def rows(*numbers: int) -> list[Row]:
    """Return rows with these numbers."""
    return [{"x": number} for number in numbers]


def test_rows_go_through_all_operators_in_order() -> None:
    """Each sees what the one before made."""
    bench = Bench(
        stream().filter(lambda row: row["x"] != 2, form="rows"),
        stream().flat_map(lambda row: [row, row], form="rows"),
        stream().map(lambda row: {"y": row["x"] * 10}, form="rows"),
    )
    result = bench.run(rows(1, 2, 3))
    assert [row["y"] for row in made(result)] == [10, 10, 30, 30]
    assert result.counts == [OperatorCount(3, 2, 0), OperatorCount(2, 4, 0), OperatorCount(4, 4, 0)]


def test_an_operator_behind_one_that_lets_nothing_through_is_not_called() -> None:
    """And counts nothing."""
    result = Bench(
        stream().filter(lambda row: False, form="rows"),
        stream().map(lambda batch: 1 / 0),
    ).run(rows(1, 2))
    assert (result.emissions, result.counts) == ([], [OperatorCount(2, 0, 0), OperatorCount(0, 0, 0)])


def test_a_batch_that_raises_nowhere_is_run_once_and_whole() -> None:
    """Halving is for trouble only."""
    sizes: list[int] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch

    Bench(stream().map(note)).run(rows(*range(100)))
    assert sizes == [100]


def inverse(batch: pa.RecordBatch) -> dict[str, Any]:
    """Raise if any row is zero, as code on whole batches does."""
    return {"x": [1 / x for x in batch["x"].to_pylist()]}


@given(numbers=st.lists(st.integers(-1, 3), min_size=1, max_size=40))
def test_exactly_the_rows_that_raise_die_and_the_others_keep_their_order(numbers: list[int]) -> None:
    """By halving the batch, wherever the bad rows are."""
    result = Bench(stream().map(inverse, on_error="dead-letter")).run(rows(*numbers))
    assert [row["x"] for row in made(result)] == [1 / x for x in numbers if x]
    assert [letter["row"] for letter in letters(result)] == ['{"x":0}'] * numbers.count(0)
    assert result.counts == [OperatorCount(len(numbers), len(numbers) - numbers.count(0), numbers.count(0))]


def test_one_bad_row_among_many_costs_few_calls() -> None:
    """A call for each half on the way down: some 2 × log2(1,024)."""
    calls: list[int] = []

    def note(batch: pa.RecordBatch) -> dict[str, Any]:
        calls.append(batch.num_rows)
        return inverse(batch)

    Bench(stream().map(note, on_error="dead-letter")).run(rows(*[1] * 700, 0, *[1] * 323))
    assert len(calls) <= 21


def test_a_split_isolates_rows_too() -> None:
    """Both branches keep what is theirs."""
    result = Bench(
        stream().split(
            lambda row: ["low", "high"][row["x"]], into=("low", "high"), form="rows", on_error="dead-letter"
        )[0]
    ).run(rows(0, 7, 1, 0))
    assert (made(result, 0), made(result, 1)) == (rows(0, 0), rows(1))
    assert letters(result)[0]["error"] == "IndexError: list index out of range"


def test_a_dead_letter_says_what_happened_where_and_to_which_row() -> None:
    """Flow, operator, error, the user's line, the row; under their own schema."""
    bench = Bench(stream().map(lambda row: row, form="rows"), stream().map(users_code.inverse, on_error="dead-letter"))
    result = bench.run(rows(4, 0))
    (letter,) = letters(result, index=1)
    assert result.dead[1][0].schema == DEAD_LETTERS
    line = letter.pop("line")
    assert letter == {
        "flow": "bench",
        "operator": "op1",
        "error": "ZeroDivisionError: division by zero",
        "row": '{"x":0}',
    }
    assert line.startswith(f"{users_code.__file__}:")
    assert line.endswith("in _divided: return 1 / x")


def test_a_stopping_operator_raises_with_the_first_bad_row() -> None:
    """One message with all that a person needs at 3 a.m."""
    with pytest.raises(UserCodeError) as raised:
        Bench(stream().map(users_code.inverse)).run([{"x": 1}, {"x": 0}, {"x": 0}])
    failure = raised.value
    assert (failure.flow, failure.operator, failure.row) == ("bench", "op0", '{"x":0}')
    assert f"{users_code.__file__}:" in failure.line
    for fact in ("'bench'", "'op0'", "ZeroDivisionError", failure.line, '{"x":0}'):
        assert fact in str(failure)


def test_the_first_bad_row_in_order_is_the_one_that_stops() -> None:
    """Not the first that halving happens upon."""
    with pytest.raises(UserCodeError) as raised:
        Bench(stream().map(lambda row: {"x": 1 // (row["x"] % 5)}, form="rows")).run(rows(1, 2, 3, 4, 5, 6, 10))
    assert raised.value.row == '{"x":5}'


def test_the_users_line_is_found_for_a_lambda() -> None:
    """In this file."""
    result = Bench(stream().map(lambda row: {"x": 1 / row["x"]}, form="rows", on_error="dead-letter")).run(rows(0))
    assert f"{__file__}:" in letters(result)[0]["line"]
    assert "in <lambda>" in letters(result)[0]["line"]


def test_the_users_line_is_named_when_arrow_raises() -> None:
    """Not Arrow's own, whose file nobody has."""
    result = Bench(stream().map(users_code.first_column, on_error="dead-letter")).run(rows(0))
    assert "users_code.py" in letters(result)[0]["line"]
    assert 'batch.column("nope")' in letters(result)[0]["line"]


def test_the_users_line_is_found_beside_a_package_whose_name_begins_like_ours() -> None:
    """`headwater_flows` next to `headwater` is the user's."""
    theirs = f"{Path(headwater.__file__).parent}_flows.py"
    names: dict[str, Any] = {}
    exec(compile("def fail(row):\n    raise ValueError('no')\n", theirs, "exec"), names)
    result = Bench(stream().map(names["fail"], form="rows", on_error="dead-letter")).run(rows(0))
    assert letters(result)[0]["line"] == f"{theirs}:2 in fail"


def test_an_error_without_a_users_line_says_so() -> None:
    """The function returned; its result is the mistake."""
    result = Bench(stream().map(dict, form="arrow", on_error="dead-letter")).run(rows(0))
    assert "no line of the flow's own code" in letters(result)[0]["line"]


def test_condemned_rows_are_dead_letters_of_the_first_operator() -> None:
    """They killed the worker, so nothing more is known."""
    chain = Bench(stream().map(inverse, on_error="dead-letter"), stream().map(inverse)).chain
    result = chain.condemn(pa.RecordBatch.from_pylist(rows(1, 2)), "the worker died")
    assert [letter["error"] for letter in letters(result)] == ["the worker died"] * 2
    assert (result.emissions, result.counts) == ([], [OperatorCount(2, 0, 2), OperatorCount(0, 0, 0)])


def test_condemned_rows_stop_an_operator_that_stops() -> None:
    """Nothing is dropped behind the user's back."""
    chain = Bench(stream().map(inverse)).chain
    with pytest.raises(UserCodeError, match="the worker died"):
        chain.condemn(pa.RecordBatch.from_pylist(rows(1)), "the worker died")


def test_a_row_whose_result_has_another_type_than_those_before_dies_alone() -> None:
    """The results must stand in one column."""
    answers: dict[int, Any] = {0: 1, 1: 2, 2: "two", 3: 3, 4: 4.5}
    result = Bench(stream().map(lambda row: {"y": answers[row["x"]]}, form="rows", on_error="dead-letter")).run(
        rows(0, 1, 2, 3, 4)
    )
    assert made(result) == [{"y": 1.0}, {"y": 2.0}, {"y": 3.0}, {"y": 4.5}]
    assert letters(result)[0]["row"] == '{"x":2}'
    assert "does not fit what it made of other rows" in letters(result)[0]["error"]


def test_a_row_whose_result_has_another_type_changes_no_state() -> None:
    """It died, so it was never counted."""

    def count(row: Row, seen: int | None) -> Any:
        return {"y": "text" if row["x"] == 1 else seen or 0}, (seen or 0) + 1

    bench = Bench(keyed("k").stateful(count, on_error="dead-letter"))
    result = bench.run([{"k": 0, "x": x} for x in (0, 1, 2)])
    assert made(result) == [{"y": 0}, {"y": 1}]


def test_numbers_that_no_common_type_can_hold_stop_the_flow() -> None:
    """A whole number beyond 2^53 beside a fraction: neither may be rounded."""
    answers: dict[int, Any] = {0: 2**60 + 1, 1: 1.5}

    def either(row: Row) -> Row:
        if row["x"] == 2:
            raise ValueError
        return {"y": answers[row["x"]]}

    with pytest.raises(UserCodeError, match="not in range"):
        Bench(stream().map(either, on_error="dead-letter")).run(rows(0, 2, 1))


def test_batches_are_joined_by_the_wider_type_and_by_name() -> None:
    """Missing columns are null, order is that of the first, empty ones have no say."""
    joined = unite(
        [
            pa.record_batch({"a": [1], "b": ["x"]}),
            pa.record_batch({"b": pa.array([], pa.int64())}),
            pa.record_batch({"b": [None], "a": [1.5], "c": [True]}),
        ]
    )
    assert joined.to_pylist() == [{"a": 1.0, "b": "x", "c": None}, {"a": 1.5, "b": None, "c": True}]


def test_batches_with_different_dictionaries_are_joined() -> None:
    """The values count, not their numbers."""
    batches = [pa.record_batch({"a": pa.array([value]).dictionary_encode()}) for value in ("x", "y")]
    assert unite(batches).to_pylist() == [{"a": "x"}, {"a": "y"}]


@pytest.mark.parametrize("more", [{}, {"n": 1}])
def test_batches_are_joined_though_their_dictionaries_have_too_few_numbers_for_all_values(more: Row) -> None:
    """Pandas numbers up to 127 categories with a byte each: of two such frames, Arrow refuses to join the columns."""
    batches = [hundred_words("x"), hundred_words("y", **more)]
    joined = unite(batches)
    assert joined["word"].to_pylist() == [f"{first}{number}" for first in "xy" for number in range(100)]
    assert joined.schema.field("word").type == pa.dictionary(pa.int32(), pa.string())


def hundred_words(first: str, **more: int) -> pa.RecordBatch:
    """Return a hundred different words as pandas' categories are written."""
    words = pa.array([f"{first}{number}" for number in range(100)])
    columns = {"word": words.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))}
    return pa.record_batch(columns | {name: pa.repeat(value, 100) for name, value in more.items()})


def test_a_row_whose_time_python_cannot_hold_is_a_dead_letter_like_any_other() -> None:
    """Milliseconds taken for seconds are some 55,000 years from now, and Python's years end with 9999."""
    late = pa.array([1_774_744_200_000], pa.timestamp("s")).cast(pa.timestamp("us"))
    result = Bench(stream().map(inverse, on_error="dead-letter")).run(pa.record_batch({"x": [0], "at": late}))
    (letter,) = letters(result)
    assert letter["row"] == '{"x":0,"at":"timestamp[us] out of Python\'s range"}'


def test_a_row_is_shown_as_json_whatever_is_in_it() -> None:
    """Bytes, dates, NaN, nested values."""
    batch = pa.record_batch(
        {
            "b": [b"\x00\xff"],
            "n": [float("nan")],
            "t": pa.array([0], pa.timestamp("ns", "UTC")),
            "d": pa.array([1], pa.duration("s")),
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "u": pa.array([2**64 - 1], pa.uint64()),
            "i": pa.array([10**30], pa.decimal128(38)),
        }
    )
    shown = show_row(batch.to_pylist()[0])
    for part in ('"n":null', "1970-01-01", "18446744073709551615", "1000000000000000000000000000000", '[["k",1]]'):
        assert part in shown


def test_a_long_row_is_cut() -> None:
    """A picture inside a row must not flood the log."""
    shown = show_row({"x": "y" * 100_000})
    assert len(shown) < ROW_CHARS_MAX + 50
    assert shown.endswith("(100008 characters)")


@pytest.mark.parametrize(
    "failure", [ValueError(), KeyError("k"), AssertionError, RecursionError("deep"), StopIteration]
)
def test_whatever_a_function_raises_is_contained(failure: Any) -> None:
    """Also what Python itself uses for its own ends."""

    def fail(row: Row) -> Row:
        raise failure

    result = Bench(stream().map(fail, on_error="dead-letter")).run(rows(1, 2))
    assert len(letters(result)) == 2
