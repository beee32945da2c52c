"""The table of Spark's cases in the documents says what the tests show."""

import re
from pathlib import Path
from typing import Final

from tests.pyspark_suite import test_engine

PAGE: Final = Path(__file__).parents[2] / "docs" / "transform-with-state.md"
ROW: Final = re.compile(r"^\| `(?P<case>test_\w+)` \| (?P<here>met|differs: )(?P<more>[^|]*) \|$", re.MULTILINE)
FORMS: Final = 2  # DataFrames and rows
OF_THE_STATE_SOURCE: Final = 4
PREFIXES: Final = ("transform_with_state_in_pandas_", "transform_with_state_with_", "transform_with_state_")


def short(case: str) -> str:
    """Return the name that a case has here."""
    name = case.removeprefix("test_")
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    return "test_" + name.removeprefix(prefix).removeprefix("transform_with_")


def test_every_case_has_a_test_of_its_own_and_a_reason_if_it_is_not_met() -> None:
    """Also those that differ: their test shows how."""
    rows = list(ROW.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(rows) == 38
    lacking = {row["case"] for row in rows if not hasattr(test_engine, short(row["case"]))}
    assert lacking == set()
    assert all(len(row["more"]) > 40 for row in rows if row["here"] != "met")


def test_the_shares_that_the_page_names_are_those_of_its_table() -> None:
    """74 of 76 with the cases of the state source, and all 68 without them."""
    text = PAGE.read_text(encoding="utf-8")
    rows = list(ROW.finditer(text))
    met, others = [row for row in rows if row["here"] == "met"], [row for row in rows if "_metadata" not in row["case"]]
    assert len(rows) - len(others) == OF_THE_STATE_SOURCE
    assert all(row in met for row in others)
    told = " ".join(text.split())
    assert f"{len(met) * FORMS} of the {len(rows) * FORMS}, and all {len(others) * FORMS} others" in told
