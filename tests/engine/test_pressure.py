"""Rows that come faster than they go: sources that can wait pause first, then rows spill, and only then are shed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.pressure import Level, Pressure, PressureConfig
from headwater.model.errors import ConfigError

APP = 1


def pressure(**changed: float) -> Pressure:
    """Return a small node's pressure: 100 bytes of memory, 1,000 of disk, 10 rows for each app."""
    settings = {"memory_bytes": 100, "disk_bytes": 1_000, "app_rows": 10, "resume_share": 0.5} | changed
    return Pressure(PressureConfig(**settings))  # type: ignore[arg-type]


def test_a_node_pauses_then_spills_then_sheds() -> None:
    """In that order as more and more waits; a source that cannot wait is always read."""
    node = pressure()
    story = []
    for held in (99, 100, 999, 1_000):
        node.measure(held, {})
        file, sensor = node.may_read(APP, can_wait=True), node.may_read(APP, can_wait=False)
        story.append((file, sensor, node.level))
        node.check()
    assert story == [
        (True, True, Level.FLOWING),
        (False, True, Level.SPILLING),
        (False, True, Level.SPILLING),
        (False, True, Level.SHEDDING),
    ]


def test_a_node_whose_sources_all_wait_only_pauses() -> None:
    """Nothing spills where nothing comes in."""
    node = pressure()
    node.measure(100, {})
    assert not node.may_read(APP, can_wait=True)
    assert node.level is Level.PAUSING


def test_a_paused_source_goes_on_only_when_half_of_the_memory_is_free() -> None:
    """Otherwise it would stop and go with every batch."""
    node = pressure()
    allowed = []
    for held in (100, 60, 50, 49, 60, 99, 100):
        node.measure(held, {})
        allowed.append(node.may_read(APP, can_wait=True))
    assert allowed == [False, False, False, True, True, True, False]


def test_an_app_with_much_waiting_pauses_its_own_sources_only() -> None:
    """With the same patience before it goes on; an app that is gone is forgotten."""
    node = pressure()
    allowed = []
    for rows in (10, 6, 4, 6):
        node.measure(0, {APP: rows, 2: 1})
        allowed.append((node.may_read(APP, can_wait=True), node.may_read(2, can_wait=True)))
    assert allowed == [(False, True), (False, True), (True, True), (True, True)]
    node.measure(0, {APP: 10})
    node.measure(0, {})
    assert node.may_read(APP, can_wait=True)


def test_just_as_much_is_shed_as_the_new_rows_need() -> None:
    """Nothing while there is room."""
    node = pressure()
    node.measure(900, {})
    assert [node.to_shed(coming) for coming in (0, 100, 101, 300)] == [0, 0, 1, 200]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1_500),
            st.dictionaries(st.integers(1, 3), st.integers(0, 20)),
            st.booleans(),
            st.integers(1, 3),
        ),
        max_size=20,
    )
)
def test_a_source_that_cannot_wait_is_never_held_back(steps: list[tuple[int, dict[int, int], bool, int]]) -> None:
    """And the level never contradicts what sources may do."""
    node = pressure()
    for held, rows_of_app, can_wait, app in steps:
        node.measure(held, rows_of_app)
        assert node.may_read(app, can_wait) or can_wait
        node.check()


@pytest.mark.parametrize(
    "changed", [{"memory_bytes": 0}, {"disk_bytes": 99}, {"app_rows": 0}, {"resume_share": 0.0}, {"resume_share": 1.5}]
)
def test_budgets_that_contradict_one_another_are_refused(changed: dict[str, float]) -> None:
    """Before anything runs."""
    with pytest.raises(ConfigError):
        pressure(**changed)
