"""README's tables are those of the kept results."""

import re

import pytest

from bench.tables import README, RESULTS, TABLES, with_tables


def test_readme_has_the_tables_of_the_kept_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run `python -m bench.tables` and look at what it changed in README.md"


def test_every_table_is_in_the_readme_with_its_result_kept() -> None:
    named = re.findall(r"<!-- table (\w+) -->", README.read_text(encoding="utf-8"))
    assert sorted(named) == sorted(TABLES)
    assert all((RESULTS / f"{name}.json").is_file() for name in named)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_edited_by_hand_is_noticed(name: str) -> None:
    text = README.read_text(encoding="utf-8")
    at = text.index(f"<!-- table {name} -->")
    digit = re.compile(r"\d").search(text, at)
    assert digit is not None
    other = text[: digit.start()] + str((int(digit[0]) + 1) % 10) + text[digit.end() :]
    assert with_tables(other) == text
