"""What the engine relies on in a store: LMDB, LMDB as a worker elsewhere has it, and the store of the tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.model.errors import StoreError, StoreFull
from headwater.model.store_contract import Store
from headwater.storage.lmdb_store import READERS_MAX, LmdbStore
from headwater.storage.memory_store import MemoryStore
from headwater.workers.remote.store_client import RemoteStore
from headwater.workers.remote.store_server import StoreServer
from headwater.workers.remote.store_wire import OpenSnapshot, StoreRefused
from tests.engine.short_line import ShortLine


@pytest.fixture(params=["memory", "lmdb", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    opened = LmdbStore(tmp_path, disk_bytes=1 << 20)
    yield opened if request.param == "lmdb" else RemoteStore(ShortLine(opened))
    opened.close()


def contents(store: Store) -> dict[bytes, bytes]:
    """Return all that a store holds."""
    with store.read() as snapshot:
        return dict(snapshot.scan(b""))


def fill(store: Store, *keys: bytes) -> None:
    """Put keys, each with itself as value."""
    with store.write() as txn:
        for key in keys:
            txn.put(key, key)


def test_what_is_put_is_found(store: Store) -> None:
    """Also an empty value; a key that was never put is None."""
    with store.write() as txn:
        txn.put(b"a", b"1")
        txn.put(b"b", b"")
    with store.read() as snapshot:
        assert [snapshot.get(key) for key in (b"a", b"b", b"c")] == [b"1", b"", None]


def test_a_later_put_replaces_an_earlier_one(store: Store) -> None:
    """One key has one value."""
    fill(store, b"a")
    with store.write() as txn:
        txn.put(b"a", b"2")
    assert contents(store) == {b"a": b"2"}


def test_what_is_deleted_is_gone_whether_it_was_there_or_not(store: Store) -> None:
    """The second delete of the same key finds nothing, and does no harm."""
    fill(store, b"a", b"b")
    with store.write() as txn:
        txn.delete(b"a")
        txn.delete(b"a")
        txn.delete(b"never")
    assert contents(store) == {b"b": b"b"}


def test_many_are_found_in_the_order_asked_for(store: Store) -> None:
    """Also twice, also none; a transaction finds its own changes among them."""
    fill(store, b"a", b"b", b"c")
    with store.write() as txn:
        txn.delete(b"b")
        txn.put(b"d", b"new")
        assert txn.get_many([b"d", b"b", b"a", b"a"]) == [b"new", None, b"a", b"a"]
    with store.read() as snapshot:
        assert snapshot.get_many([b"d", b"b", b"a", b"a", b"never"]) == [b"new", None, b"a", b"a", None]
        assert snapshot.get_many([]) == []


def test_a_transaction_sees_its_own_changes(store: Store) -> None:
    """By key and in a scan."""
    fill(store, b"a", b"c")
    with store.write() as txn:
        txn.put(b"b", b"new")
        txn.delete(b"c")
        assert (txn.get(b"b"), txn.get(b"c")) == (b"new", None)
        assert list(txn.scan(b"")) == [(b"a", b"a"), (b"b", b"new")]


def test_nobody_else_sees_a_transaction_before_its_end(store: Store) -> None:
    """A reader that opens in the middle sees what was committed before."""
    fill(store, b"a")
    with store.write() as txn:
        txn.put(b"b", b"b")
        with store.read() as snapshot:
            assert list(snapshot.scan(b"")) == [(b"a", b"a")]
    assert contents(store) == {b"a": b"a", b"b": b"b"}


def test_a_snapshot_does_not_change_under_its_reader(store: Store) -> None:
    """A commit shows in the next snapshot."""
    fill(store, b"a", b"b")
    with store.read() as snapshot:
        with store.write() as txn:
            txn.put(b"a", b"changed")
            txn.delete(b"b")
            txn.put(b"c", b"c")
        assert dict(snapshot.scan(b"")) == {b"a": b"a", b"b": b"b"}
        assert (snapshot.get(b"a"), snapshot.get(b"c")) == (b"a", None)
    assert contents(store) == {b"a": b"changed", b"c": b"c"}


def test_a_block_that_raises_changes_nothing(store: Store) -> None:
    """All or nothing, and the next transaction works."""
    fill(store, b"a")

    def half_done() -> None:
        with store.write() as txn:
            txn.put(b"b", b"b")
            txn.delete(b"a")
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        half_done()
    assert contents(store) == {b"a": b"a"}
    fill(store, b"b")
    assert contents(store) == {b"a": b"a", b"b": b"b"}


def test_a_scan_keeps_to_its_prefix_and_its_start(store: Store) -> None:
    """In the order of the bytes; the start itself need not be there."""
    fill(store, b"p\x00", b"p\x02", b"p\xff", b"q", b"o", b"p")
    with store.read() as snapshot:
        assert [key for key, _ in snapshot.scan(b"p")] == [b"p", b"p\x00", b"p\x02", b"p\xff"]
        assert [key for key, _ in snapshot.scan(b"p", b"p\x01")] == [b"p\x02", b"p\xff"]
        assert list(snapshot.scan(b"x")) == []


def test_a_start_behind_the_prefix_finds_nothing(store: Store) -> None:
    """It does not run on into the keys of others."""
    fill(store, b"p1", b"q1")
    with store.read() as snapshot:
        assert list(snapshot.scan(b"p", b"q")) == []


def test_keys_as_long_as_ours_are_taken(store: Store) -> None:
    """The longest is that of a state: 11 bytes and up to 440 of the row's key."""
    fill(store, b"k" * 451)
    assert contents(store) == {b"k" * 451: b"k" * 451}


changes = st.lists(
    st.tuples(st.sampled_from(["put", "delete"]), st.binary(min_size=1, max_size=3), st.binary(max_size=3)), max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transactions=st.lists(st.tuples(changes, st.booleans()), max_size=6), prefix=st.binary(max_size=1))
def test_a_store_is_an_ordered_dict_with_commits(
    store: Store, transactions: list[tuple[list[tuple[str, bytes, bytes]], bool]], prefix: bytes
) -> None:
    """Any sequence of commits and aborts leaves what a plain dict would hold."""
    expected: dict[bytes, bytes] = {}
    with store.write() as txn:
        for key in contents(store):
            txn.delete(key)
    for steps, commits in transactions:
        draft = dict(expected)
        try:
            with store.write() as txn:
                for step, key, value in steps:
                    if step == "put":
                        txn.put(key, value)
                        draft[key] = value
                    else:
                        txn.delete(key)
                        draft.pop(key, None)
                if not commits:
                    raise InterruptedError
        except InterruptedError:
            draft = expected
        expected = draft
    with store.read() as snapshot:
        assert list(snapshot.scan(prefix)) == sorted(one for one in expected.items() if one[0].startswith(prefix))


def test_values_and_walks_of_any_length_are_read(store: Store) -> None:
    """Longer than a page or a frame of the network, many or one."""
    held = {b"long%d" % number: bytes([number]) * (400_000 * number) for number in range(1, 6)}
    held |= {b"small%05d" % number: b"x" * 50 for number in range(5_000)}
    with store.write() as txn:
        for key, value in held.items():
            txn.put(key, value)
    with store.read() as snapshot:
        assert snapshot.get_many(list(held)) == list(held.values())
        assert dict(snapshot.scan(b"")) == held
        assert [key for key, _ in snapshot.scan(b"small", b"small04990")] == [
            b"small%05d" % n for n in range(4990, 5000)
        ]
    with store.write() as txn:
        txn.delete(b"small00002")
        txn.put(b"small00000+", b"between")
        assert [key[5:] for key, _ in first(txn.scan(b"small"), 3)] == [b"00000", b"00000+", b"00001"]
        assert sum(1 for _ in txn.scan(b"small")) == 5_000


def first(entries: Iterator[tuple[bytes, bytes]], count: int) -> list[tuple[bytes, bytes]]:
    """Return the first entries and let go of the rest."""
    return [entry for entry, _ in zip(entries, range(count), strict=False)]


def test_a_memory_store_without_room_refuses_and_changes_nothing() -> None:
    """As LMDB does when its map or the disk is full."""
    store = MemoryStore(bytes_max=4)
    fill(store, b"ab")
    with pytest.raises(StoreFull):
        fill(store, b"c", b"de")
    assert contents(store) == {b"ab": b"ab"}


def test_a_store_that_can_be_read_no_more_says_so(tmp_path: Path) -> None:
    """All places for readers may be taken; one that gives its place back lets the next in."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    with ExitStack() as readers:
        for _ in range(READERS_MAX):
            readers.enter_context(store.read())
        with pytest.raises(StoreError, match=r"the store in .* cannot be read: .*READERS_FULL"):
            store.read()
        reader = StoreServer(store)
        assert isinstance(reader.answer(OpenSnapshot(1)), StoreRefused)
    fill(store, b"a")
    assert contents(store) == {b"a": b"a"}
    store.close()


def test_a_store_that_was_closed_is_neither_read_nor_written(tmp_path: Path) -> None:
    """Threads may outlive it for a moment; what they meet has words of ours."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    store.close()
    with pytest.raises(StoreError, match=r"the store in .* cannot be read"):
        store.read()
    with pytest.raises(StoreError, match=r"the store in .* cannot be written"):
        store.write()


def test_the_files_of_a_store_are_its_owners_alone(tmp_path: Path) -> None:
    """There are rows and state in them; the directory may be one that others can look into."""
    tmp_path.chmod(0o755)
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    store.own()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    store.close()
