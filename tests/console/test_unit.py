"""The systemd unit that ships: what it starts is there, and it fills no disk."""

import configparser
import shlex
from pathlib import Path
from typing import Final

import pytest

UNIT: Final = Path(__file__).parents[2] / "deploy" / "headwater-node.service"


@pytest.fixture(scope="module")
def unit() -> configparser.RawConfigParser:
    """The unit, as systemd reads it; settings that are said several times are of no interest here."""
    read = configparser.RawConfigParser(strict=False)
    read.read_string(UNIT.read_text(encoding="utf-8"))
    return read


def test_the_unit_logs_json_to_the_journal_and_not_beside_the_store(unit: configparser.RawConfigParser) -> None:
    """The journal has a limit of its own, and everybody knows where it is."""
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[1:] == ["node", "--json", "--log-format", "json"]
    assert "StandardError" not in unit["Service"], "the journal is where it goes by default"


def test_the_documentation_of_the_unit_is_put_where_it_says_by_its_own_steps(
    unit: configparser.RawConfigParser,
) -> None:
    steps = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line.startswith("#   install ")]
    for place in unit["Unit"]["Documentation"].split():
        path = Path(place.removeprefix("file://"))
        assert any(f"--target-directory {path.parent} " in step and f"docs/{path.name}" in step for step in steps)
        assert (UNIT.parents[1] / "docs" / path.name).exists()
