"""Writes become durable in the order in which they are made, whatever happens to a disk's speed."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.time import Duration, Instant
from headwater.sim.disks import Disks

SYNC = Duration(10)


def test_what_comes_during_a_group_commit_goes_with_the_next() -> None:
    """A third is not begun before the second is done."""
    disks = Disks()
    disks.slow("n1", SYNC)
    durable = [disks.written_at("n1", Instant(now)) for now in (0, 3, 7, 11, 19, 45)]
    assert durable == [10, 20, 20, 30, 30, 55]
    assert disks.written_at("n2", Instant(3)) == 3


def test_a_disk_that_is_quick_again_first_writes_what_waits() -> None:
    disks = Disks()
    disks.slow("n1", SYNC)
    assert [disks.written_at("n1", Instant(now)) for now in (0, 5)] == [10, 20]
    disks.heal()
    assert [disks.written_at("n1", Instant(now)) for now in (6, 12, 21)] == [20, 20, 21]


@given(st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(0, 20)), max_size=30))
def test_no_write_is_durable_before_an_earlier_one(steps: list[tuple[int, int | None]]) -> None:
    disks, now, before = Disks(), 0, 0
    for wait, sync in steps:
        now += wait
        if sync is not None:
            disks.slow("n1", Duration(sync))
        durable = disks.written_at("n1", Instant(now))
        assert durable >= max(now, before)
        assert durable <= max(now, before) + 20
        before = durable
