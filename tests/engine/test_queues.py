"""The queues' bookkeeping: numbers only grow, so that news may come late, twice or never."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.queues import Queue, Queues
from headwater.model.ids import AppId, InstanceId, WorkerId

ONE = InstanceId(AppId(1), 0)
WORKER = WorkerId(1)


def queues_with(queue: Queue, now_us: int = 0) -> Queues:
    """Return the books of a node with one queue."""
    queues = Queues()
    queues.add(queue, now_us)
    return queues


def test_a_queue_is_ready_while_rows_wait_and_nobody_runs_it() -> None:
    """Empty, waiting, running, waiting again, stopped."""
    queue = Queue(ONE)
    queues = queues_with(queue)
    seen = [queue.ready]
    queues.put(ONE, 5, 500, now_us=1)
    seen.append(queue.ready)
    queues.started(queue, WORKER, rows=1, now_us=2)
    seen.append(queue.ready)
    queues.ended(queue, now_us=3)
    seen.append(queue.ready)
    queues.stop(ONE, now_us=4)
    seen.append(queue.ready)
    queues.check()
    assert seen == [False, True, False, True, False]


def test_the_queue_of_a_sink_is_never_ready() -> None:
    """A pump empties it."""
    queues = queues_with(Queue(ONE, scheduled=False))
    queues.put(ONE, 5, 500, now_us=1)
    assert not queues.ready()


def test_news_of_rows_taken_may_come_before_news_that_they_were_put() -> None:
    """The queue is never of negative length."""
    queue = Queue(ONE)
    queues = queues_with(queue)
    queues.took(ONE, 3, 300, now_us=1)
    queues.check()
    queues.put(ONE, 2, 200, now_us=2)
    assert queue.waiting == 0
    queues.put(ONE, 5, 500, now_us=3)
    assert (queue.waiting, queue.bytes_held) == (2, 200)


def test_a_queue_that_becomes_ready_again_waits_anew() -> None:
    """Patience is counted from when it last became ready."""
    queue = Queue(ONE)
    queues = queues_with(queue)
    queues.put(ONE, 5, 500, now_us=10)
    queues.put(ONE, 6, 600, now_us=20)
    assert queue.ready_since_us == 10
    queues.started(queue, WORKER, rows=1, now_us=30)
    queues.ended(queue, now_us=40)
    assert queue.ready_since_us == 40


def test_time_without_rows_waiting_or_running_is_added_up() -> None:
    """Empty from 0 to 100, waiting to 150, running to 200, empty again."""
    queue = Queue(ONE)
    queues = queues_with(queue)
    queues.put(ONE, 1, 100, now_us=100)
    queues.started(queue, WORKER, rows=1, now_us=150)
    queues.took(ONE, 1, 100, now_us=190)
    queues.ended(queue, now_us=200)
    assert [queue.empty_total_us(now) for now in (200, 230)] == [100, 130]


def test_a_forgotten_queue_is_gone_from_every_list() -> None:
    """Also from those that are ready; news of it do no harm."""
    queues = queues_with(Queue(ONE, put_rows=3))
    assert ONE in queues.ready()
    queues.remove(ONE)
    queues.put(ONE, 9, 900, now_us=1)
    queues.took(ONE, 9, 900, now_us=1)
    queues.stop(ONE, now_us=1)
    queues.check()
    assert (len(queues), dict(queues.ready())) == (0, {})


news = st.lists(st.tuples(st.sampled_from(["put", "took"]), st.integers(0, 20)), max_size=20)


@given(told=news, again=st.randoms(use_true_random=False))
def test_news_in_any_order_and_any_number_of_times_leave_the_same_books(
    told: list[tuple[str, int]], again: object
) -> None:
    """The larger number is the later one."""
    shuffled = told * 2
    again.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _after(told) == _after(shuffled)


def _after(told: list[tuple[str, int]]) -> tuple[int, int, int]:
    queue = Queue(ONE)
    queues = queues_with(queue)
    for what, rows in told:
        (queues.put if what == "put" else queues.took)(ONE, rows, rows * 10, now_us=0)
        queues.check()
    return max(queue.put_rows, queue.taken_rows), queue.taken_rows, queue.gone_bytes


def test_a_queue_reserved_for_rows_to_come_counts_as_empty_until_they_come() -> None:
    """Being held by a worker that is busy upstream is not being utilised."""
    queues = Queues()
    queue = Queue(ONE)
    queues.add(queue, now_us=0)
    queues.reserve(queue, WORKER, rows=10, now_us=100)
    assert queue.empty_total_us(400) == 400
    queues.ended(queue, now_us=400)
    assert (queue.empty_total_us(500), queue.followed) == (500, True)
    queues.check()
