"""Benchmarks are found by what they offer, and their ratios are told with what they should reach."""

from pathlib import Path

import pytest

from headwater.console.bench import Ratio, benchmarks, ratios_of
from headwater.model.errors import ConfigError
from tests.console.flows import Command


def test_only_modules_with_a_run_are_benchmarks(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('"""Benchmarks."""\n')
    (tmp_path / "engine.py").write_text(
        '"""How fast it is.\n\nMore."""\n\ndef run(quick: bool) -> dict:\n    return {}\n'
    )
    (tmp_path / "workload.py").write_text('"""What is measured."""\n')
    assert benchmarks(tmp_path) == {"engine": "How fast it is."}


def test_a_machine_without_the_repository_is_told_where_benchmarks_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="checkout of the repository"):
        benchmarks(tmp_path)


def test_ratios_are_told_with_what_they_are_to_reach_and_whether_they_do() -> None:
    result = {
        "ratios": {"latency": 3.0, "rows": 0.5, "peers": None},
        "details": {"goals": {"latency": ">= 2", "rows": ">= 1"}, "reached": {"latency": True, "rows": False}},
    }
    assert ratios_of(result) == [
        Ratio("latency", 3.0, ">= 2", True),
        Ratio("rows", 0.5, ">= 1", False),
        Ratio("peers", None, "–", None),
    ]


def test_without_a_name_the_benchmarks_are_listed_and_an_unknown_one_is_refused(headwater: Command) -> None:
    assert "engine" in headwater("bench").stdout
    result = headwater("bench", "no-such-thing")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no benchmark 'no-such-thing'; there are: ")
