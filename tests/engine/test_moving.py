"""An instance's state in another store: cut in pieces, put together there, and gone on with as if it had stayed."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import functions as F
from headwater.dataflow.stream import Flow, Stream, flow, source
from headwater.engine.channels import read_stretch, receive
from headwater.engine.moving import (
    BEGINNING,
    CopySource,
    Standing,
    StatePiece,
    all_lots,
    begin_under,
    clear_state,
    is_settled,
    keep_lot,
    place_behind,
    put_piece,
    read_lot,
    read_piece,
    read_source,
    read_standing,
    take_up,
)
from headwater.engine.plans import ChainPlan, plan_chain
from headwater.engine.queue_records import read_queue
from headwater.engine.times import Times
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Store
from headwater.model.store_layout import received_key
from headwater.operators.watermarks import OperatorTime
from tests.dataflow.specs import Closed, Wall
from tests.engine.small_node import SmallNode
from tests.engine.test_event_time import SCHEMA, batch

ORIGIN, OWN = b"o" * 16, b"w" * 16
SOURCE = CopySource(b"h" * 16, (1, 0))


def shaped(shape: str, instances: int) -> Flow:
    """Return a flow whose last chain keeps something."""
    timed: Stream = source(Closed(SCHEMA)).with_watermark("t", "2 seconds", name="marks")
    keyed = timed.key_by("k")
    kept = {
        "counts": lambda: keyed.window(F.window("t", "10 seconds")).agg(F.count(), name="kept", parallelism=instances),
        "sessions": lambda: keyed.window(F.session_window("t", "4 seconds")).agg(
            F.count(), name="kept", parallelism=instances
        ),
        "dedup": lambda: timed.dedup("k", event_time="t", within="9 seconds", name="kept", parallelism=instances),
    }[shape]()
    return flow("moved", kept.sink(Wall(), name="out"))


def plan_of(node: SmallNode, instance: InstanceId) -> ChainPlan:
    """Return how a node runs an instance."""
    chain = next(chain for chain in node.graph.chains if instance.number in chain.instances)
    return plan_chain(node.graph, node.app, chain)


def pieces(
    store: Store,
    plan: ChainPlan,
    instance: InstanceId,
    bytes_max: int,
    entry_bytes_max: int = 1 << 20,
    entries_max: int = 1_000,
) -> list[StatePiece]:
    """Return an instance's state, cut as it travels."""
    cut: list[StatePiece] = []
    with store.read() as snapshot:
        while not cut or not cut[-1].is_last:
            after = place_behind(cut[-1].held[-1]) if cut else BEGINNING
            cut.append(read_piece(snapshot, plan, instance, after, bytes_max, entry_bytes_max, entries_max))
    return cut


def move(here: SmallNode, there: SmallNode, instance: InstanceId, bytes_max: int, entry_bytes_max: int) -> None:
    """Bring an instance that has taken all its rows from one store into another."""
    plan = plan_of(here, instance)
    with here.store.read() as snapshot:
        standing = read_standing(snapshot, instance, ORIGIN)
    for piece in pieces(here.store, plan, instance, bytes_max, entry_bytes_max):
        with there.store.write() as txn:
            put_piece(txn, plan, instance, piece.held)
    with there.store.write() as txn:
        take_up(txn, instance, OWN, standing, (1, 1), SOURCE, len(plan_of(here, instance).operators))
    with here.store.write() as txn:
        clear_state(txn, plan, instance, shared=True)


def run_dry(node: SmallNode) -> None:
    """Let all that waits be taken."""
    while ready := [one for one in node.instances if node.has_work(one)]:
        assert node.turn(ready[0]).trouble is None


@pytest.mark.parametrize("shape", ["counts", "sessions", "dedup"])
@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4)), min_size=2, max_size=30),
    cut=st.integers(0, 30),
    bytes_max=st.integers(1, 400),
    entry_bytes_max=st.integers(1, 400),
)
@settings(max_examples=40)
def test_an_instance_that_moves_goes_on_as_if_it_had_stayed(
    shape: str, rows: list[tuple[str, int]], cut: int, bytes_max: int, entry_bytes_max: int
) -> None:
    """Whatever it keeps, wherever it is cut, and into however small pieces: what comes out is the same."""
    times, now = [], 0
    for key, step in rows:
        now += step
        times.append((key, now))
    stayed, here, there = (SmallNode(shaped(shape, 2)) for _ in range(3))
    for node in (stayed, here):
        for key, second in times[:cut]:
            node.feed(batch(second, key=key))
        run_dry(node)  # both: when a deduplication forgets depends on where its turns end
    for instance in here.instances:
        move(here, there, instance, bytes_max, entry_bytes_max)
    for node in (stayed, there):
        for key, second in times[cut:]:
            node.feed(batch(second, key=key))
        node.end()
        run_dry(node)
    moved = [*here.write_out("out"), *there.write_out("out")]
    assert sorted(map(str, moved)) == sorted(map(str, stayed.write_out("out")))
    for instance in here.instances:
        assert pieces(here.store, plan_of(here, instance), instance, 1 << 20) == [StatePiece((), is_last=True)]


def test_a_piece_has_no_more_entries_than_a_message_takes() -> None:
    """Of a state of many small entries all come, in as many pieces as that takes: the receiver takes no others."""
    node = SmallNode(shaped("counts", 1))
    for second in range(0, 200, 10):
        node.feed(batch(second, key=f"k{second}"))
    run_dry(node)
    [instance] = [one for one in node.instances if pieces(node.store, plan_of(node, one), one, 1 << 20)[0].held]
    plan = plan_of(node, instance)
    [whole] = pieces(node.store, plan, instance, 1 << 20)
    cut = pieces(node.store, plan, instance, 1 << 20, entries_max=3)
    assert max(len(piece.held) for piece in cut) == 3
    assert tuple(held for piece in cut for held in piece.held) == whole.held


def test_only_the_keys_of_the_instance_move() -> None:
    """Another instance of the same operator, in the same store, keeps its own; what they share goes along."""
    node = SmallNode(shaped("counts", 2))
    for number in range(20):
        node.feed(batch(number % 9, key=f"k{number}"))
    run_dry(node)
    first, second = (node.instance("kept", index) for index in (0, 1))
    (of_first,), (of_second,) = (pieces(node.store, plan_of(node, one), one, 1 << 20) for one in (first, second))
    both = {held[:2] for held in of_first.held} & {held[:2] for held in of_second.held}
    assert len(of_first.held) > len(both)
    assert len(of_second.held) > len(both)
    with node.store.write() as txn:
        clear_state(txn, plan_of(node, first), first, shared=False)
    (left,) = pieces(node.store, plan_of(node, second), second, 1 << 20)
    assert left == of_second


def test_state_of_somebody_else_s_keys_is_refused() -> None:
    """A peer that errs, or lies, cannot write into another instance's state, nor into that of another operator."""
    node = SmallNode(shaped("counts", 2))
    for number in range(20):
        node.feed(batch(number % 9, key=f"k{number}"))
    run_dry(node)
    first, second = (node.instance("kept", index) for index in (0, 1))
    (of_first,) = pieces(node.store, plan_of(node, first), first, 1 << 20)
    fresh = SmallNode(shaped("counts", 2))
    own = [held for held in of_first.held if held[1][0] != 0]
    with pytest.raises(StoreError, match="not of a key"), fresh.store.write() as txn:
        put_piece(txn, plan_of(fresh, second), second, own)
    wrong = [(99, *held[1:]) for held in own]
    with pytest.raises(StoreError, match="operator 99"), fresh.store.write() as txn:
        put_piece(txn, plan_of(fresh, first), first, wrong)
    with pytest.raises(StoreError, match="has no state"), fresh.store.write() as txn:
        put_piece(txn, plan_of(fresh, first), first, [(own[0][0], b"short", 0, b"")])
    number, name, _, value = own[0]
    with pytest.raises(StoreError, match="where nothing ends"), fresh.store.write() as txn:
        put_piece(txn, plan_of(fresh, first), first, [(number, name, 5, value)])


def test_what_was_received_elsewhere_is_not_taken_again() -> None:
    """Up to which number the rows of each store were taken goes along; what lay here of ours and was taken is gone."""
    node = SmallNode(shaped("counts", 1), chaining=False)
    instance = node.instance("kept")
    for number in range(4):
        node.feed(batch(number, key="a"))
    (marks,) = [one for one in node.instances if one != instance]
    while node.has_work(marks):
        node.turn(marks, 1)
    with node.store.read() as snapshot:
        waiting = read_queue(snapshot, instance)
    assert waiting.waiting_rows == 4
    taken = waiting.head_sequence + 2
    with node.store.write() as txn:
        before = read_queue(txn, instance).turns
        record = take_up(txn, instance, OWN, Standing(((ORIGIN, 7), (OWN, taken)), None), (3, 4), SOURCE, 1)
    with node.store.read() as snapshot:
        assert snapshot.get(received_key(instance, ORIGIN)) is not None
        assert record.head_sequence == taken
        assert record.turns == before + 1, "what a worker remembers of it is of another time"
        assert (read_lot(snapshot, instance), is_settled(snapshot, instance)) == ((3, 4), False)
        assert read_source(snapshot, instance) == SOURCE
    with node.store.write() as txn:
        keep_lot(txn, instance, (3, 4))
    with node.store.read() as snapshot:
        assert (is_settled(snapshot, instance), read_source(snapshot, instance)) == (True, None)


def test_what_its_own_node_put_there_is_not_taken_again_elsewhere() -> None:
    """Rows that were sent before the instance came to their node may still be under way when it has gone on."""
    here, there = (SmallNode(shaped("counts", 1)) for _ in range(2))
    (instance,) = here.instances
    for second in range(3):
        here.feed(batch(second, key="a"))
    with here.store.read() as snapshot:
        under_way = read_stretch(snapshot, instance, 0, 1 << 20)
    assert under_way.until == 3
    run_dry(here)
    move(here, there, instance, 1 << 20, 1 << 20)
    with there.store.write() as txn:
        received, grown = receive(txn, instance, ORIGIN, 0, under_way)
    assert (received.until, grown) == (3, None)


@pytest.mark.parametrize(
    "standing",
    [
        Standing(((b"short", 3),), None),
        Standing(((ORIGIN, -1),), None),
        Standing(((OWN, 99),), None),
        Standing((), b"x"),
        Standing((), msgspec.msgpack.encode(Times({}, [OperatorTime(), OperatorTime()]))),
    ],
)
def test_a_standing_that_makes_no_sense_is_refused(standing: Standing) -> None:
    """Nothing of it is kept."""
    node = SmallNode(shaped("counts", 1), chaining=False)
    instance = node.instance("kept")
    with pytest.raises(StoreError), node.store.write() as txn:
        take_up(txn, instance, OWN, standing, (1, 1), SOURCE, 1)
    with node.store.read() as snapshot:
        assert read_lot(snapshot, instance) is None


def test_what_is_left_from_an_earlier_placement_is_not_gone_on_with() -> None:
    """A lot is never drawn twice: under another one the instance begins empty, unless it runs here all along."""
    node = SmallNode(shaped("counts", 1), chaining=False)
    instance = node.instance("kept")
    plan = plan_of(node, instance)
    node.feed(batch(1, key="a"))
    run_dry(node)
    with node.store.write() as txn:
        keep_lot(txn, instance, (1, 1))
        begin_under(txn, plan, instance, (1, 1), here=())
    (kept,) = pieces(node.store, plan, instance, 1 << 20)
    assert kept.held
    with node.store.write() as txn:
        begin_under(txn, plan, instance, (2, 1), here={instance.number})
    assert pieces(node.store, plan, instance, 1 << 20) == [kept]
    with node.store.write() as txn:
        begin_under(txn, plan, instance, (3, 1), here=())
    assert pieces(node.store, plan, instance, 1 << 20) == [StatePiece((), is_last=True)]
    with node.store.read() as snapshot:
        assert all_lots(snapshot, AppId(1)) == {instance.number: (3, 1)}
