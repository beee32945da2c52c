"""Spark is lost and cannot be started again for a while: it is tried for as long as it takes, and the truth is told."""

import re
import shutil
from pathlib import Path

import pytest

from tests.runtime.spark_away import told

pytestmark = pytest.mark.spark

AWAY = (
    r"Spark was lost \(its JVM was ended by SIGKILL\), and could not be started again: its JVM ended with exit code "
    r"\d+; rows and state wait \(tried \d+ times, again in \d+ s\); see (\S+/spark\.log)"
)


def pointed_to(notes: list[str]) -> Path:
    """The log that a note names."""
    found = re.search(AWAY, "; ".join(notes))
    assert found is not None, notes
    return Path(found[1])


def test_a_spark_that_does_not_start_is_tried_until_it_does_and_the_app_goes_on(tmp_path: Path) -> None:
    seen = told("alone", tmp_path)
    shutil.rmtree(pointed_to(seen["away"]).parent)
    assert (seen["state"], seen["exact"]) == ("running", True)
    assert any("and is back after" in note for note in seen["notes"])
    assert not any("wait (tried" in note for note in seen["notes"])


def test_a_node_ends_at_once_while_it_waits_and_while_spark_starts_and_keeps_the_log_it_pointed_to(
    tmp_path: Path,
) -> None:
    seen = told("stopped", tmp_path)
    assert seen["threads"] == []
    log = pointed_to(seen["away"])
    assert "there is no memory for a Java" in log.read_text()
    assert {path.name for path in log.parent.iterdir()} == {"spark.log", "spark.log.kept"}
    shutil.rmtree(log.parent)


def test_nodes_that_share_a_spark_tell_what_is_the_matter_and_every_verb_ends(tmp_path: Path) -> None:
    seen = told("several", tmp_path)
    assert len({pointed_to(notes) for notes in seen["nodes"]}) == 1
    shutil.rmtree(pointed_to(seen["nodes"][0]).parent)
    state, errors = seen["status"]
    assert (state, seen["apps"]) == ("troubled", [["app", "troubled"]])
    assert any("Spark was lost" in error for error in errors)
    assert re.search(
        "was not upgraded: the upgrade was given up: .* still waited after 3 s.*Spark was lost", seen["upgrade"]
    )
    assert re.search("app is troubled, and nothing has come of it for 1 s: .*Spark was lost", seen["waited"])
    assert (seen["exact"], seen["stopped"], seen["mistakes"]) == (True, "app", [0, 0])


def test_a_run_that_waits_for_spark_ends_when_it_is_told_to_and_says_where_to_look(tmp_path: Path) -> None:
    seen = told("interrupted", tmp_path)
    assert seen["code"] == 130
    found = re.search(r"could not be started again: .*; see (\S+/spark\.log)", seen["said"])
    assert found is not None, seen["said"]
    assert "there is no memory for a Java" in Path(found[1]).read_text()
    shutil.rmtree(Path(found[1]).parent)


def test_a_run_and_a_node_whose_first_spark_hangs_end_when_they_are_told_to(tmp_path: Path) -> None:
    """Else they would wait for it for minutes."""
    seen = told("starting", tmp_path)
    assert (seen["run"], seen["node"]) == ([130, 0], [0, 0])
