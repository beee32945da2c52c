"""Every application on eight peers beside the same on one node, without Spark; and that a difference would be seen."""

from typing import Any

import pytest

from bench.same import on_a_cluster, on_one_node
from bench.same_trials import TRIALS, Results, Trial, difference
from headwater.loading.catalogue import shipped
from headwater.model.errors import HeadwaterError

Both = dict[str, tuple[Results | HeadwaterError, Results | HeadwaterError]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """What one node gives, and what the cluster does."""
    place = tmp_path_factory.mktemp("same")
    alone = on_one_node(TRIALS, place / "node", spark=False)
    together = on_a_cluster(TRIALS, place / "cluster", spark=False)
    return {name: (alone[name], together[name]) for name in alone}


def test_every_application_is_tried() -> None:
    assert [trial.app for trial in TRIALS] == sorted(shipped())


@pytest.mark.slow
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.app)
def test_eight_peers_give_what_one_node_gives(trial: Trial, both: Both) -> None:
    """All at once, read at one node and written at another, their operators on several."""
    alone, together = both[trial.app]
    assert isinstance(alone, dict), alone
    assert isinstance(together, dict), together
    assert all(alone.values()), "there is something to compare of every kind of result"
    assert difference(trial, alone, together, in_order=True) is None


def row(n: int, **more: Any) -> dict[str, Any]:
    return {"n": n, **more}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([row(1), row(2)], None),
        ([row(2), row(1)], "in another order"),
        ([row(1)], "1 of 2 rows are missing, 0 others"),
        ([row(1), row(2), row(2)], "0 of 2 rows are missing, 1 others"),
        ([row(1), row(3)], "1 of 2 rows are missing, 1 others"),
    ],
)
def test_a_row_too_few_too_many_or_in_the_wrong_place_is_told(found: list[dict[str, Any]], told: str | None) -> None:
    why = difference(Trial(app="any", ordered_by=()), {"results": [row(1), row(2)]}, {"results": found}, in_order=True)
    assert (why is None) if told is None else (why is not None and told in why)


def test_only_rows_of_one_key_need_to_keep_their_order() -> None:
    trial = Trial(app="any", ordered_by=("key",))
    due = {"results": [row(1, key="a"), row(2, key="b"), row(3, key="a")]}
    assert (
        difference(trial, due, {"results": [row(2, key="b"), row(1, key="a"), row(3, key="a")]}, in_order=True) is None
    )
    swapped = {"results": [row(3, key="a"), row(2, key="b"), row(1, key="a")]}
    assert difference(trial, due, swapped, in_order=True) == "results: the rows are the same, in another order"
    assert difference(trial, due, swapped, in_order=False) is None


def test_the_last_digits_of_a_fraction_may_differ_and_no_more() -> None:
    trial = Trial(app="any")
    due = {"results": [row(1, mean=[0.1 + 0.2, 507.1234375])]}
    assert difference(trial, due, {"results": [row(1, mean=[0.3, 507.12343750000001])]}, in_order=True) is None
    assert difference(trial, due, {"results": [row(1, mean=[0.3000001, 507.1234375])]}, in_order=True) is not None


def test_a_kind_of_result_that_is_missing_is_told() -> None:
    assert (
        difference(Trial(app="any"), {"a": [], "b": []}, {"a": []}, in_order=False)
        == "results ['a'] instead of ['a', 'b']"
    )
