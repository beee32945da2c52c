"""Rows that come faster than they go: sources that can wait pause first, then rows spill, and only then are shed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.events import RowsPut
from headwater.engine.pressure import Level, Pressure, PressureConfig, Underway
from headwater.engine.queues import Queue, Queues
from headwater.model.errors import ConfigError
from headwater.model.ids import AppId, InstanceId

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


SOURCES = 3
POLL = 40  # bytes that a source brings at most, whatever room there is
Step = tuple[str, int, int]  # what happens, to which source, with how many bytes


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["poll", "store", "drop", "hear", "run"]),
            st.integers(0, SOURCES - 1),
            st.integers(1, POLL),
        ),
        max_size=60,
    )
)
def test_what_sources_bring_passes_the_budget_by_one_poll_at_most(steps: list[Step]) -> None:
    """However late the scheduler hears of it, and however many sources have rows in their hands at a time."""
    node, underway, queues = pressure(app_rows=10_000), Underway(), Queues()
    instances = [InstanceId(AppId(APP), number) for number in range(SOURCES)]
    for instance in instances:
        queues.add(Queue(instance), 0)
    hands, put, gone, told = [0] * SOURCES, [0] * SOURCES, [0] * SOURCES, [0] * SOURCES
    for what, at, size in steps:
        node.measure(queues.bytes_held + underway.uncounted(queues), {}, underway.in_hand())
        if what == "poll" and not hands[at] and node.may_read(APP, can_wait=True):
            hands[at] = size
            underway.brought(at, APP, size, size)
            node.brought(APP, size, size)
        elif what == "store" and hands[at]:
            put[at], hands[at] = put[at] + hands[at], 0
            underway.stored(RowsPut(instances[at], put[at], put[at]))
            underway.let_go(at)
        elif what == "drop":
            hands[at] = 0
            underway.let_go(at)
        elif what == "hear":
            told[at] = put[at]
            queues.put(instances[at], put[at], put[at], 0)
        elif what == "run":
            gone[at] = min(told[at], gone[at] + size)
            queues.took(instances[at], gone[at], gone[at], 0)
        waiting = sum(hands) + sum(put) - sum(gone)
        assert waiting < node.config.memory_bytes + POLL
        counted = queues.bytes_held + underway.uncounted(queues) + underway.in_hand()
        assert counted == waiting
        assert underway.rows_of_app(queues)[APP] == waiting
        node.check()


def test_what_is_under_way_to_a_queue_that_is_gone_is_forgotten() -> None:
    """Else an app that was removed would hold up the others for ever."""
    underway, queues, instance = Underway(), Queues(), InstanceId(AppId(APP), 0)
    queues.add(Queue(instance), 0)
    underway.stored(RowsPut(instance, 5, 500))
    assert (underway.uncounted(queues), underway.rows_of_app(queues)[APP]) == (500, 5)
    queues.remove(instance)
    assert (underway.uncounted(queues), underway.rows_of_app(queues)[APP]) == (0, 0)
    queues.add(Queue(instance), 0)
    assert underway.uncounted(queues) == 0


@pytest.mark.parametrize(
    "changed", [{"memory_bytes": 0}, {"disk_bytes": 99}, {"app_rows": 0}, {"resume_share": 0.0}, {"resume_share": 1.5}]
)
def test_budgets_that_contradict_one_another_are_refused(changed: dict[str, float]) -> None:
    """Before anything runs."""
    with pytest.raises(ConfigError):
        pressure(**changed)
