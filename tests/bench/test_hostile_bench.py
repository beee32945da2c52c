"""A short run of the hostile benchmark without Spark: attacks that were felt, and honest users who are answered."""

import json
from pathlib import Path

import pytest

from bench.hostile import GOALS, Plan, run_plan
from bench.hostile_attacks import ATTACKS
from bench.hostile_ring import Asked, answered, p99_s
from headwater.links.refusals import Reason

FELT = ("unfinished messages", "silent strangers", "paths of trees")
SHORT = Plan(attacks=FELT, attack_s=2.0, after_s=1.0, calm_s=4.0, spark=False)


@pytest.mark.slow
def test_honest_users_are_answered_while_a_node_is_attacked(tmp_path: Path) -> None:
    output = tmp_path / "hostile.json"
    result = run_plan(SHORT, output, lambda _: None)
    details = result["details"]
    assert result["ratios"].keys() == GOALS.keys() == details["reached"].keys()
    assert result["ratios"]["honest_requests_answered"] == 1.0, details["unanswered"]
    assert details["is_balanced"]
    assert all(attack["rows"] > 0 for attack in details["attacks"].values()), "rows flow all the while"
    assert {name for name, attack in details["attacks"].items() if set(attack["done"]) - {"ended"}} == set(FELT)
    assert any(Reason.TOO_OFTEN in node for node in details["refused"].values()), details["refused"]
    assert json.loads(output.read_text())["ratios"] == result["ratios"]


def test_every_attack_says_what_it_does() -> None:
    assert all(attack.__doc__ for attack in ATTACKS.values())


def test_a_request_that_is_not_answered_counts_and_so_does_the_slowest() -> None:
    asked = [Asked("nodes", 0, 0.0, 0.1)] * 98 + [Asked("nodes", 0, 0.0, 5.0), Asked("nodes", 0, 0.0, 75.0, "silent")]
    assert answered(asked) == 0.99
    assert p99_s(asked) == 75.0
    assert (answered([]), p99_s([])) == (0.0, 0.0)
