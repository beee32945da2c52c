"""Flows on a node that read from a broker and write to one, through commits, pauses, stops and kills."""

import contextlib
import functools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import headwater as hw
from headwater.connectors.mqtt.source import MqttReader
from headwater.engine.pressure import PressureConfig
from headwater.engine.status import AppState
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig
from tests.connectors.brokers import PATIENCE_S, Broker, Visitor, eventually
from tests.connectors.mqtt_flows import numbers
from tests.runtime.gates import Gate, passing

ROOT = Path(__file__).parents[2]


@contextmanager
def deployed(tmp_path: Path, flow: hw.Flow, **settings: Any) -> Iterator[tuple[Node, NodeApp]]:
    """A node that runs a flow whose sources have subscribed."""
    with Node(NodeConfig(store=tmp_path / "store", workers=1, spark=False, **settings)) as node:
        yield node, node.deploy(flow)


def reader_of(app: NodeApp) -> MqttReader:
    """Return the reader of an app's only source."""
    reader = app.sources[0].reader
    assert isinstance(reader, MqttReader)
    return reader


def client_of(broker: Broker, app: NodeApp) -> str:
    """Return the name that the broker knows a source by, once it has subscribed."""
    client = reader_of(app)._client_id
    eventually(lambda: broker.logged("Sending SUBACK to", client), "the source has subscribed")
    return client


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_acknowledged_when_the_store_has_it_and_not_before(
    shared_broker: Broker, topic: str, tmp_path: Path, qos: int
) -> None:
    """As long as the test holds the store's only writing transaction, nothing can be committed."""
    sink = hw.to.memory()
    flow = hw.flow("held", hw.read.mqtt(f"{shared_broker.url}/{topic}", qos=qos).sink(sink))
    with deployed(tmp_path, flow) as (node, app):
        client = client_of(shared_broker, app)
        acknowledged = f"Received {'PUBACK' if qos == 1 else 'PUBREC'} from {client}"
        with node.store.write():
            shared_broker.publish(topic, numbers(0, 1), qos=qos)
            eventually(lambda: reader_of(app)._receipts._polled, "the message is polled")
            shared_broker.publish(f"{topic}/other", numbers(0, 1))  # whatever was sent before this is in the log
            assert shared_broker.logged(acknowledged) == 0
        eventually(lambda: shared_broker.logged(acknowledged) == 1)
        eventually(lambda: sink.rows_seen == 1)


def test_rows_go_from_a_broker_through_operators_to_a_broker(shared_broker: Broker, topic: str, tmp_path: Path) -> None:
    """Spread over two instances by a key that only the messages show."""

    def total(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
        seen = (seen or 0) + row["n"]
        return {"city": row["city"], "total": seen}, seen

    readings = hw.read.mqtt(f"{shared_broker.url}/{topic}/in")
    totals = readings.key_by("city").stateful(total, parallelism=2)
    flow = hw.flow("totals", totals.sink(hw.to.mqtt(shared_broker.url, f"{topic}/out/{{city}}")))
    with deployed(tmp_path, flow) as (node, app), Visitor(shared_broker, f"{topic}/out/#") as visitor:
        client_of(shared_broker, app)
        cities = ("geneva", "rio", "boston")
        sent = [b'{"n": %d, "city": "%s"}' % (n, cities[n % 3].encode()) for n in range(30)]
        shared_broker.publish(f"{topic}/in", sent)
        last = {one.topic: one.payload for one in (visitor.next() for _ in range(30))}
        assert last == {
            f"{topic}/out/{city}": b'{"city":"%s","total":%d}' % (city.encode(), sum(range(at, 30, 3)))
            for at, city in enumerate(cities)
        }
        eventually(lambda: node.ledger(app).rows_out == 30)
        assert node.ledger(app).balanced


@pytest.mark.parametrize("qos", [1, 2])
def test_a_flow_that_is_halted_and_deployed_again_goes_on_with_its_session(
    shared_broker: Broker, topic: str, tmp_path: Path, qos: int
) -> None:
    sink = hw.to.memory()
    flow = hw.flow("back", hw.read.mqtt(f"{shared_broker.url}/{topic}", qos=qos).sink(sink))
    with deployed(tmp_path, flow) as (node, app):
        client_of(shared_broker, app)
        for at in range(0, 40, 10):
            shared_broker.publish(topic, numbers(at, at + 5), qos=qos)
            node.halt(app)
            shared_broker.publish(topic, numbers(at + 5, at + 10), qos=qos)
            app = node.deploy(flow)
        eventually(lambda: sink.rows_seen >= 40)
        assert [row["n"] for row in sink.rows()] == list(range(40))
        assert node.ledger(app).balanced


def test_a_slow_flow_leaves_its_messages_at_the_broker(shared_broker: Broker, topic: str, tmp_path: Path) -> None:
    gate, sink = Gate(tmp_path), hw.to.memory()
    rows = hw.read.mqtt(f"{shared_broker.url}/{topic}", inflight=10)
    flow = hw.flow("slow", rows.map(functools.partial(passing, gate.path)).sink(sink))
    with deployed(tmp_path, flow, pressure=PressureConfig(app_rows=40)) as (node, app):
        client = client_of(shared_broker, app)
        shared_broker.publish(topic, numbers(0, 1_000))
        eventually(lambda: app.sources[0].paused, "the source is paused")
        sent = shared_broker.logged(f"Sending PUBLISH to {client}")
        gate.open()
        assert sent < 500
        eventually(lambda: sink.rows_seen >= 1_000)
        assert [row["n"] for row in sink.rows()] == list(range(1_000))
        assert node.ledger(app).balanced


def test_a_node_stops_while_a_sink_waits_for_its_broker(tmp_path: Path) -> None:
    rows = hw.read.generator(lambda first, count: {"n": range(first, first + count)}, rows=10)
    flow = hw.flow("stuck", rows.sink(hw.to.mqtt(f"{Broker(tmp_path).url}/t")))
    with deployed(tmp_path, flow) as (node, app):
        pump = node.sinks._own[app.sinks[0].instance]
        eventually(pump._lock.locked, "the sink writes")
    assert not pump._thread.is_alive()
    assert app.state is AppState.STOPPED


def test_an_app_that_is_not_let_in_fails_with_the_sentence(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "allow_anonymous false").start()
    with deployed(tmp_path, hw.flow("out", hw.read.mqtt(f"{broker.url}/t").sink(hw.to.nothing()))) as (node, app):
        assert node.wait(app, PATIENCE_S)
        assert app.state is AppState.FAILED
        assert f"{broker.url} refuses the connection" in str(app.error)
    broker.kill()


def test_messages_left_out_and_refused_are_in_the_ledger(shared_broker: Broker, topic: str, tmp_path: Path) -> None:
    sink = hw.to.memory()
    rows = hw.read.mqtt(f"{shared_broker.url}/{topic}", bad_messages="skip")
    with deployed(tmp_path, hw.flow("counts", rows.sink(sink))) as (node, app):
        client_of(shared_broker, app)
        shared_broker.publish(topic, [b"nonsense", *numbers(0, 2)])
        eventually(lambda: node.ledger(app).rows_out == 2)
        ledger = node.ledger(app)
        assert (ledger.rows_in, ledger.dropped, ledger.balanced) == (3, {"unparsable": 1}, True)


def _start(directory: Path, broker: Broker, qos: int) -> subprocess.Popen[bytes]:
    """A node in a process of its own that copies what it reads to a file, and to the broker with a last will."""
    script = f"""
from pathlib import Path
import headwater as hw
rows = hw.read.mqtt("{broker.url}/in", qos={qos}, schema=None)
copy = hw.to.mqtt("{broker.url}/copy", qos={qos}, will=hw.to.will("will", "gone", retain=False))
flow = hw.flow("killed", rows.sink(hw.to.json({str(directory / "out.jsonl")!r})), rows.sink(copy))
hw.run(flow, store=Path({str(directory / "store")!r}), spark=False, workers=1)
"""
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.DEVNULL)


def _lines(directory: Path) -> list[int]:
    """Return the numbers in the file, as far as its lines are whole."""
    path = directory / "out.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [orjson.loads(line)["n"] for line in whole.splitlines()]


def _wait(node: subprocess.Popen[bytes], holds: Any) -> None:
    while not holds():
        assert node.poll() is None, "the node ended by itself"
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(0.002)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_node_that_is_killed_again_and_again_stores_each_message_once(
    broker: Broker, tmp_path: Path, qos: int
) -> None:
    """And its last will is sent each time, and the copies that it sends are all there, some perhaps twice."""
    rng = random.Random(qos)
    rows, kills = 1_500, 2
    with (
        Visitor(broker, "will") as heir,
        Visitor(broker, "copy", qos=qos) as copies,
        Visitor(broker) as sender,
    ):
        node = _start(tmp_path, broker, qos)
        _wait(node, lambda: broker.logged("Sending SUBACK to headwater"))
        for part in range(kills + 1):
            first, last = rows * part // (kills + 1), rows * (part + 1) // (kills + 1)
            sender.publish([("in", one) for one in numbers(first, last)], qos=2)
            if part < kills:
                wanted = rng.randint(first, last)
                _wait(node, lambda wanted=wanted: len(_lines(tmp_path)) >= wanted)
                node.send_signal(signal.SIGKILL)
                node.wait()
                assert heir.take(1) == [b"gone"]
                node = _start(tmp_path, broker, qos)
        sender.publish([("in", b'{"n": -1}')], qos=2)
        _wait(node, lambda: -1 in _lines(tmp_path))
        copied: set[int] = set()
        while len(copied) <= rows:
            copied.add(orjson.loads(copies.next().payload)["n"])
        node.kill()
        node.wait()
    assert _lines(tmp_path) == [*range(rows), -1]
    assert copied == {*range(rows), -1}
