"""Workers that reach the store through the node, as they do on other machines: same rows, same ledger, same guarantee.

The contract of the store itself is held in tests/engine/test_store_contract.py, on all kinds of stores.
"""

import contextlib
import functools
import itertools
import os
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.engine.queue_records import read_queue
from headwater.engine.turn import COMMITS_MAX, TurnRunner
from headwater.model.errors import ConfigError, Conflict, EngineError, StoreFull
from headwater.model.frames import BrokenFrame, Inbox
from headwater.model.store_layout import queue_key
from headwater.runtime.node import Node
from headwater.spark.address import Door, NodeAddress, this_machine
from headwater.spark.standalone import masters_of, reach_master
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.config import NodeConfig
from headwater.workers.local.wire import Done, Hello
from headwater.workers.local.worker import serve
from headwater.workers.remote.certificate import make_certificate
from headwater.workers.remote.remote_line import NodeOutOfReach, RemoteLine, connect
from headwater.workers.remote.store_client import RemoteStore, RemoteTransaction, companions_of
from headwater.workers.remote.store_wire import (
    KNOCK_BYTES_MAX,
    Commit,
    CommitsHeld,
    Committed,
    Conflicted,
    Fetch,
    HoldCommits,
    Knock,
    OpenSnapshot,
    framed,
)
from tests.engine.short_line import ShortLine
from tests.engine.small_node import SmallNode
from tests.runtime.flows import by_sensor, expected_sums, made_rows, running_sums
from tests.runtime.own_process import run

PATIENCE_S = 120.0


@pytest.fixture
def remote_node(tmp_path: Path) -> Iterator[Node]:
    """A node whose workers are threads that reach the store through its port."""
    with Node(NodeConfig(store=tmp_path / "store", workers=2, spark=False, remote_port="always")) as node:
        yield node


def door_of(node: Node) -> Door:
    """Return the node's port."""
    assert node._address.door is not None
    return node._address.door


@contextlib.contextmanager
def far_line(node: Node) -> Iterator[RemoteLine]:
    """A line to the node, as a spare worker has it, to which no turn is given as long as no flow runs."""
    with contextlib.closing(connect(door_of(node), Hello(os.getpid(), 0, spare=True))) as line:
        yield line


@pytest.fixture
def far_store(remote_node: Node) -> Iterator[RemoteStore]:
    """The node's store as a worker elsewhere has it."""
    with far_line(remote_node) as line:
        yield RemoteStore(line)


def test_a_flow_gives_the_same_rows_over_the_network(remote_node: Node) -> None:
    """Filter, flat map and keyed state over two instances, on workers that have no store of their own."""
    sink = hw.to.memory()
    app = remote_node.deploy(running_sums("far", 5_000, sink))
    assert remote_node.wait(app, PATIENCE_S)
    assert app.error is None
    assert by_sensor(sink.rows()) == expected_sums(5_000)
    assert remote_node.ledger(app).balanced


def test_workers_that_are_cut_off_in_mid_turn_change_nothing(remote_node: Node) -> None:
    """Again and again while rows flow; what was committed before the cut counts, and nothing counts twice."""
    sink = hw.to.memory()
    app = remote_node.deploy(running_sums("cut", 6_000, sink, rate=4_000))
    while not remote_node.wait(app, 0.1):
        assert remote_node.ledger(app).balanced
        remote_node.dispatcher.drop_workers()
    assert app.error is None
    assert remote_node.dispatcher.workers_lost >= 10
    assert by_sensor(sink.rows()) == expected_sums(6_000)
    assert remote_node.ledger(app).balanced


@pytest.mark.spark
@pytest.mark.slow
def test_killed_spark_workers_change_nothing_over_the_network() -> None:
    """Real processes, kill -9 in mid-run: results and ledger are those of an undisturbed run."""
    outcome = run({"workers": 2, "remote_port": "always"}, rows=9_000, kills=6)
    assert outcome.error == ""
    assert outcome.kills > 0  # how many there is time for, the machine decides
    assert all(outcome.driver in worker for worker in outcome.workers)
    assert outcome.sums == expected_sums(9_000)
    assert outcome.balanced


def test_a_turn_looks_once_and_commits_once(tmp_path: Path) -> None:
    """Its rows came along, its state is remembered: two questions, whatever the store is asked for."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    line = ShortLine(store)
    node = SmallNode(running_sums("trips", 10, hw.to.nothing(), parallelism=1), store=RemoteStore(line))
    assert isinstance(node.store, RemoteStore)
    node.store.companions = companions_of({instance: plan for instance, (plan, _) in node._plans.items()})
    asked = []
    for first in range(0, 50, 10):
        node.feed([{"n": n, "sensor": f"s{n % 2}"} for n in range(first, first + 10)])
        line.bring_along(node.instances)
        before = line.questions
        node.turn(node.instances[0])
        asked.append(line.questions - before)
    assert asked[0] > 2  # schemas and state are read once
    assert asked[2:] == [2, 2, 2]
    store.close()


def test_what_comes_along_is_not_taken_for_true_after_a_commit(tmp_path: Path) -> None:
    """A pack that hands rows from one operator to the next must see what it has put there."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    line = ShortLine(store)
    flow = running_sums("pack", 10, hw.to.nothing(), parallelism=1)
    node = SmallNode(flow, store=RemoteStore(line), chaining=False)
    node.feed([{"n": n, "sensor": "s"} for n in range(8)])
    line.bring_along(node.instances)
    reports = node.pack(*[(instance, 1_000) for instance in node.instances])
    assert [report.rows for report in reports.values()] == [8, 6, 9]
    store.close()


@pytest.mark.parametrize("races", [0, 1, COMMITS_MAX - 1, COMMITS_MAX])
def test_a_turn_that_is_outrun_is_committed_all_the_same_or_superseded(tmp_path: Path, races: int) -> None:
    """Nothing is computed again for it, and what an attempt had put, as the schema of the rows, is put again."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    line = ShortLine(store)
    renamed = hw.read.generator(made_rows, rows=1).map(lambda row: {"m": row["n"]}, name="m")
    sinks = [renamed.sink(hw.to.nothing(), name=name) for name in "ab"]
    node = SmallNode(hw.flow("outrun", *sinks), store=RemoteStore(line))
    node.feed([{"n": 1}])
    left = iter(range(races))

    def overtake() -> None:
        if next(left, None) is not None:
            with store.write() as txn:
                record = read_queue(txn, node.instance("m"))
                txn.put(queue_key(node.instance("m")), record._replace(last_end_us=record.last_end_us + 1).pack())

    line.before_commit = overtake
    report = node.turn("m")
    if races < COMMITS_MAX:
        assert (report.rows, report.note) == (1, "")
        line.before_commit = lambda: None
        node.runner = TurnRunner(node.store, node.term, {}, lambda: 0)  # which knows no schema yet
        assert [node.write_out(name) for name in "ab"] == [[{"m": 1}], [{"m": 1}]]
    else:
        assert (report.rows, report.note) == (0, "superseded")
        assert node.turn("m").rows == 1
    store.close()


def test_a_commit_whose_reads_no_longer_hold_is_a_conflict_and_changes_nothing(
    remote_node: Node, far_store: RemoteStore
) -> None:
    """A value that changed, one that came, one that went."""
    put(remote_node, b"Zchanged", b"1")
    put(remote_node, b"Zgone", b"1")

    def overtaken(txn: RemoteTransaction, key: bytes, value: bytes | None) -> None:
        txn.get(key)
        put(remote_node, key, value)

    for key, value in ((b"Zchanged", b"2"), (b"Znew", b"1"), (b"Zgone", None)):
        far_store = RemoteStore(far_store._line)  # which has had no conflict yet
        with pytest.raises(Conflict):
            commit_after(far_store, functools.partial(overtaken, key=key, value=value))
        with remote_node.store.read() as snapshot:
            assert snapshot.get(b"Zresult") is None
    commit_after(far_store, lambda txn: txn.get_many([b"Zchanged", b"Znew", b"Zgone"]))
    with remote_node.store.read() as snapshot:
        assert snapshot.get(b"Zresult") == b"committed"


def test_a_key_that_appears_where_a_transaction_walked_is_a_conflict(remote_node: Node, far_store: RemoteStore) -> None:
    """In the middle or behind the last; not where it has not been."""
    for key in (b"Zw1", b"Zw3"):
        put(remote_node, key, b"")

    def overtaken(txn: RemoteTransaction, key: bytes) -> None:
        assert list(txn.scan(b"Zw"))
        put(remote_node, key, b"")

    for key in (b"Zw2", b"Zw4"):
        with pytest.raises(Conflict):
            commit_after(far_store, functools.partial(overtaken, key=key))
    commit_after(far_store, functools.partial(overtaken, key=b"Zx"))


def test_what_nobody_read_may_change(remote_node: Node, far_store: RemoteStore) -> None:
    """Only what a transaction rests on is looked at."""
    with far_store.write() as txn:
        txn.get(b"Za")
        put(remote_node, b"Zb", b"theirs")
        txn.put(b"Zb", b"ours")
    with remote_node.store.read() as snapshot:
        assert snapshot.get(b"Zb") == b"ours"


def test_after_two_conflicts_all_others_are_held_back(remote_node: Node, far_store: RemoteStore) -> None:
    """Somebody who changes the key whenever we have read it does not keep a worker out for ever."""
    others = []

    def interfere(number: int) -> None:
        """Change the key, from a thread of its own: the third one has to wait until we have committed."""
        others.append(threading.Thread(target=put, args=(remote_node, b"Zk", b"%d" % number)))
        others[-1].start()
        if number < 2:
            others[-1].join()

    def gets_through(number: int) -> bool:
        try:
            with far_store.write() as txn:
                seen = txn.get(b"Zk")
                interfere(number)
                txn.put(b"Zours", seen or b"none")
        except Conflict:
            return False
        return True

    assert [gets_through(number) for number in range(3)] == [False, False, True]
    others[-1].join()
    with remote_node.store.read() as snapshot:
        assert (snapshot.get(b"Zk"), snapshot.get(b"Zours")) == (b"2", b"1")


def test_a_worker_that_holds_others_back_and_dies_is_not_waited_for(remote_node: Node) -> None:
    """Its connection ends, and the others go on at once: an hour of holding back would outlast this test."""
    assert remote_node.port is not None
    remote_node.port.hold_s = 3_600.0
    with far_line(remote_node) as line:
        assert isinstance(line.ask(HoldCommits()), CommitsHeld)
    put(remote_node, b"Zk", b"1")
    with remote_node.store.read() as snapshot:
        assert snapshot.get(b"Zk") == b"1"


def test_others_are_held_back_for_a_moment_only(remote_node: Node) -> None:
    """A worker that takes too long commits like anybody else: if nothing has changed, or not at all."""
    with far_line(remote_node) as line:
        for expected in (Conflicted, Committed):
            assert isinstance(line.ask(HoldCommits()), CommitsHeld)
            put(remote_node, b"Zk", b"1")  # waits until the moment is over
            reads = [(b"Zk", None)] if expected is Conflicted else []
            assert isinstance(line.ask(Commit(reads, [], [(b"Zo", b"1")])), expected)


def test_a_full_store_is_told_as_such(tmp_path: Path) -> None:
    """Nothing was changed, and the worker knows that it is for want of room."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    store._env.set_mapsize(1 << 20)
    remote = RemoteStore(ShortLine(store))
    with pytest.raises(StoreFull, match="used up"), remote.write() as txn:
        txn.put(b"k", b"x" * (2 << 20))
    with remote.read() as snapshot:
        assert list(snapshot.scan(b"")) == []
    store.close()


def is_dropped(sock: socket.socket) -> bool:
    """Whether the node hangs up without a word."""
    sock.settimeout(PATIENCE_S)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def tls(door: Door) -> ssl.SSLSocket:
    """A connection of somebody who has the certificate but has said nothing yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=door.certificate)
    return context.wrap_socket(socket.create_connection((door.host, door.port)))


def test_strangers_are_dropped(remote_node: Node) -> None:
    """Without TLS, without the token, with a question or with noise in its place, with too long a message."""
    door = door_of(remote_node)
    workers = remote_node.dispatcher.worker_pids()
    with socket.create_connection((door.host, door.port)) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert is_dropped(plain)
    noise = [
        framed(Knock(b"guess", 1, 1, False)),
        framed(Knock(door.token[:-1], 1, 1, False)),
        framed(OpenSnapshot(1)) + framed(Fetch(1, [b"!term"])),
        framed(Done([])),
        b"\xff" * 64,
        (8).to_bytes(4, "little") + b"\xc1" * 8,
        (KNOCK_BYTES_MAX + 1).to_bytes(4, "little"),
    ]
    for words in noise:
        with tls(door) as sock:
            sock.sendall(words)
            assert is_dropped(sock), words
    assert sorted(remote_node.dispatcher.worker_pids()) == sorted(workers)


def test_a_worker_that_talks_nonsense_is_dropped(remote_node: Node) -> None:
    """A snapshot that is not open, a second knock, a question before the answer to the last commit."""
    door = door_of(remote_node)
    workers = Counter(remote_node.dispatcher.worker_pids())
    knock = framed(Knock(door.token, 1, 0, True))
    commit = framed(Commit([], [], [(b"Zk", b"1")]))
    for words in (framed(Fetch(7, [b"k"])), knock, framed(OpenSnapshot(1)) + framed(OpenSnapshot(1)), commit + commit):
        with tls(door) as sock:
            sock.sendall(knock + words)
            while not is_dropped(sock):
                pass
    # The node may still be striking off the last of the dropped ones: only the others are certain.
    assert workers <= Counter(remote_node.dispatcher.worker_pids()), "the others were disturbed"


def test_a_worker_speaks_to_no_other_node(remote_node: Node, tmp_path: Path) -> None:
    """It accepts the certificate that came with its task, so its token never gets to anybody else."""
    _, other = make_certificate(tmp_path)
    door = door_of(remote_node)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(Door(door.host, door.port, other, door.token), Hello(1, 1, False))


def test_a_message_of_any_length_is_put_together_from_any_pieces() -> None:
    """One byte at a time, or several messages at once."""
    long = Commit([], [], [(b"k", b"v" * (3 << 20))])
    travelling = framed(Fetch(1, [b"k"])) + framed(long) + framed(HoldCommits())
    inbox = Inbox(8 << 20)
    cuts = [0, 1, 2, 5, 1 << 20, (1 << 20) + 3, len(travelling)]
    arrived = [one for start, stop in itertools.pairwise(cuts) for one in inbox.put(travelling[start:stop])]
    assert arrived == Inbox(8 << 20).put(travelling)
    assert len(arrived) == 3
    with pytest.raises(BrokenFrame):
        Inbox(1 << 20).put(travelling)


def test_a_worker_knows_whether_it_is_on_its_nodes_machine(remote_node: Node, tmp_path: Path) -> None:
    """The same kernel, the same numbering of processes, a store and a socket that are there."""
    here = NodeAddress(this_machine(), remote_node._address.socket, remote_node._address.store, 1, False)
    assert here.is_here()
    assert not NodeAddress("another", here.socket, here.store, 1, False).is_here()
    assert not NodeAddress(here.machine, str(tmp_path / "none"), here.store, 1, False).is_here()
    assert not NodeAddress(here.machine, here.socket, str(tmp_path / "none"), 1, False).is_here()
    assert not remote_node._address.is_here()
    with pytest.raises(NodeOutOfReach, match="remote_port='never'"):
        serve(NodeAddress("another", here.socket, here.store, 1, False), 1, False)


@pytest.mark.parametrize("url", ["yarn", "local[2]", "spark://", "spark://host", "spark://a:1,b", "spark://a:1/x"])
def test_a_master_that_is_none_is_refused_before_anything_starts(url: str) -> None:
    """The sentence says what to give instead."""
    with pytest.raises(ConfigError, match="use spark://host:port"):
        NodeConfig(spark_master=url)


def test_a_master_may_be_several() -> None:
    """As on a cluster with a stand-by; also by address."""
    assert masters_of("spark://a:7077,[::1]:7078") == [("a", 7077), ("::1", 7078)]


def test_a_master_out_of_reach_fails_at_once_with_a_sentence(tmp_path: Path) -> None:
    """Spark alone would try for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"spark://127.0.0.1:{closed.getsockname()[1]}"
        assert reach_master(url) == "127.0.0.1"
    with pytest.raises(EngineError, match="no Spark master can be reached at spark://127"):
        Node(NodeConfig(store=tmp_path / "store", spark_master=url))


def put(node: Node, key: bytes, value: bytes | None) -> None:
    """Commit something, or its absence, on the node's own machine."""
    with node.store.write() as txn:
        if value is None:
            txn.delete(key)
        else:
            txn.put(key, value)


def commit_after(store: RemoteStore, steps: Callable[[RemoteTransaction], object]) -> None:
    """Commit something that rests on what the steps read."""
    with store.write() as txn:
        steps(txn)
        txn.put(b"Zresult", b"committed")
