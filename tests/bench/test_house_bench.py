"""The figures of the house: what is counted, on this very checkout."""

import json
from pathlib import Path

from bench.house import GOALS, run


def test_the_figures_of_the_house_are_counted_and_kept(tmp_path: Path) -> None:
    """Every figure has a goal, and what has not reached it says what is in the way."""
    told: list[str] = []
    found = run(True, tmp_path / "house.json", told.append)
    assert json.loads((tmp_path / "house.json").read_text()) == found
    ratios, details = found["ratios"], found["details"]
    assert ratios.keys() == GOALS.keys()
    assert sum(details["lines_by_room"].values()) == ratios["source_lines"]
    assert len(told) == len(details["lines_by_room"])
    assert ratios["class_names_with_several_homes"] == 0
    assert all(details["limits"][name] for name, reached in details["reached"].items() if not reached)
