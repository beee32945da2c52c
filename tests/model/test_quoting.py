"""What others have written is quoted at a length that a person reads."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import ConnectorError, FlowError, HeadwaterError, UnknownColumn
from headwater.model.quoting import MESSAGE_CHARS_MAX, brief, listed, quoted


@given(st.one_of(st.text(), st.binary(), st.integers(), st.lists(st.text())))
def test_what_is_short_is_quoted_whole_and_what_is_long_is_not(value: object) -> None:
    """As Python writes it, up to a limit."""
    whole = repr(value)
    assert quoted(value) == (whole if len(whole) <= 60 else quoted(value))
    assert len(quoted(value)) <= 63


def test_long_things_are_recognised_by_their_beginnings() -> None:
    """A value, a name, and several of them."""
    assert quoted("x" * 10_000_000) == "'" + "x" * 59 + "..."
    assert brief("y" * 100) == "y" * 60 + "..."
    assert listed(["a", "b"]) == "a, b"
    assert listed(f"c{number}" for number in range(1_000)).endswith("c18, c19 and 980 more")
    assert listed([]) == ""


@pytest.mark.parametrize("kind", [HeadwaterError, FlowError, ConnectorError])
def test_an_error_keeps_what_happened_and_what_to_do_whatever_is_in_between(kind: type[HeadwaterError]) -> None:
    """Also where it quotes something that no one has shortened."""
    error = kind(f"the file is broken: {'x' * 1_000_000}; replace it")
    assert len(str(error)) <= MESSAGE_CHARS_MAX
    assert str(error).startswith("the file is broken: xxx")
    assert str(error).endswith("xxx; replace it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_unknown_column_is_told_beside_the_first_of_those_there_are() -> None:
    """The facts themselves stay whole."""
    error = UnknownColumn("map", "z" * 1_000, [f"column {number:04}" for number in range(500)])
    assert (len(error.column), len(error.known)) == (1_000, 500)
    assert len(str(error)) < 500
