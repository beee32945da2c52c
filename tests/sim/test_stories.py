"""Stories of seeds: faults combine, a run is the same every time, and what breaks is told with how to replay it."""

import os
import subprocess
import sys

import pytest

from headwater.model.errors import ConfigError
from headwater.model.time import seconds
from headwater.sim.faults import NAMED, Crashes, Partitions, faults_named
from headwater.sim.story import told
from headwater.sim.troubled import Excuse, TroubledWorld, beyond_limits
from headwater.sim.witness import Witness


@pytest.mark.parametrize("faults", NAMED)
def test_a_ring_is_whole_again_after_any_faults(faults: str) -> None:
    for seed in range(2):
        outcome = told(seed, faults, nodes=5)
        assert outcome.failure is None, f"{outcome.failure.what}; replay: {outcome.replay}"
        assert outcome.apps > 0


@pytest.mark.parametrize("seed", range(12))
def test_a_few_stormy_seeds(seed: int) -> None:
    outcome = told(1_000 + seed, "stormy", nodes=4)
    assert outcome.failure is None, f"{outcome.failure.what}; replay: {outcome.replay}"


def test_faults_combine_each_once() -> None:
    assert faults_named("split-brain+churn+split-brain") == (*NAMED["split-brain"], *NAMED["churn"])
    assert {type(fault) for fault in faults_named("stormy")} >= {Crashes, Partitions}
    assert faults_named("calm") == ()


def test_unknown_faults_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no faults 'earthquake'; there are: calm, .*stormy"):
        faults_named("calm+earthquake")


def test_another_seed_is_another_story() -> None:
    digests = {told(seed, "calm", nodes=3).digest for seed in range(3)}
    assert len(digests) == 3


@pytest.mark.world
def test_a_seed_is_the_same_byte_for_byte_whatever_the_order_of_sets() -> None:
    code = "from headwater.sim.story import told; print(told(3, 'stormy', 6).digest)"

    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return run.stdout

    assert digest("1") == digest("2")


def test_a_trace_tells_every_event_and_changes_none() -> None:
    lines: list[str] = []
    watched = told(1, "churn", 3, lines.append)
    assert any("crashes" in line for line in lines)
    assert any("from n1: " in line for line in lines)
    assert watched.digest == told(1, "churn", 3).digest


def test_a_broken_invariant_is_told_with_its_time_the_last_events_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(world: TroubledWorld) -> None:
        raise AssertionError("two suns")

    monkeypatch.setattr(TroubledWorld, "check_safety", broken)
    outcome = told(2, "calm", 3)
    assert outcome.failure is not None
    assert outcome.failure.what.startswith("AssertionError: two suns")
    assert outcome.failure.at_s > 0
    assert outcome.failure.lately
    assert outcome.replay == "headwater sim --seed 2 --faults calm --nodes 3"


def small_world(nodes: int = 4) -> TroubledWorld:
    """Return a ring that nothing has disturbed."""
    world = TroubledWorld(1, nodes=nodes, zones=1, links_fail=False, witness=Witness())
    world.add()
    for _ in range(nodes - 1):
        world.join()
        world.run(1)
    return world


def test_an_app_is_owed_while_its_owner_lives_and_excused_by_name_when_nobody_knew_of_it() -> None:
    world = small_world()
    world.submit(world.random_app("owed", operators=1, sources=1), "n1")
    world.submit(world.random_app("excused", operators=1, sources=1), "n2")
    assert world.faults()
    world.lose("n2", back_s=None)  # before a word of the app has left it
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    assert world.entries("owed")
    assert not world.entries("excused")
    assert world.excuses()[Excuse.NEVER_PASSED_ON] == 1


def test_an_app_is_owed_whose_owner_comes_back_though_it_had_told_nobody() -> None:
    """It was confirmed once it was on the owner's disk."""
    world = small_world()
    world.submit(world.random_app("owed", operators=1, sources=1), "n2")
    world.lose("n2", back_s=5.0)
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    assert world.entries("owed")
    assert not world.excuses()


def test_an_app_ends_whose_owner_was_restarted_when_it_was_to() -> None:
    """Some steward has it, though nobody has told the owner so since it is back."""
    world = small_world()
    world.submit(world.random_app("over", operators=1, sources=1), "n2")
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    world.end("over")
    world.lose("n2", back_s=0.2)
    assert world.run_until(lambda: "over" in world.ended, at_most=120)
    assert world.run_until(world.is_whole, at_most=120), world.faults()


def test_a_submission_that_was_never_on_a_disk_was_never_confirmed() -> None:
    world = small_world()
    for address in world.nodes:
        world.disks.slow(address, seconds(1))
    world.submit(world.random_app("nobody's", operators=1, sources=1), "n2")
    world.lose("n2", back_s=None)
    world.run(3)
    assert world.happened["submissions never confirmed"] == 1
    assert not world.specs


def test_excuses_have_limits_that_few_stories_may_miss_by_chance_and_many_may_not() -> None:
    assert beyond_limits({Excuse.ALL_WHO_KNEW: 3}, 50) == []
    [told_of] = beyond_limits({Excuse.ALL_WHO_KNEW: 300}, 5_000)
    assert told_of.startswith("300 of 5,000 apps are excused, and 2.0% may be")
    assert beyond_limits({}, 0) == []
