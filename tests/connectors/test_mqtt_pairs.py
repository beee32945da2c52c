"""Two flows at one broker: what they may share, both have whole; what they may not, one of them has."""

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.connectors.in_process import MemorySink
from headwater.model.errors import ConnectorError
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig
from tests.connectors.brokers import PATIENCE_S, Broker, Visitor, eventually
from tests.connectors.mqtt_flows import numbers
from tests.connectors.test_mqtt_nodes import client_of


def reading(name: str, url: str, **how: Any) -> tuple[hw.Flow, MemorySink]:
    """A flow from a topic into memory."""
    sink = hw.to.memory()
    return hw.flow(name, hw.read.mqtt(url, name="in", **how).sink(sink, name="out")), sink


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that has not been started."""
    return Node(NodeConfig(store=tmp_path / "store", workers=1, spark=False))


def test_two_flows_that_read_one_topic_each_have_every_message(shared_broker: Broker, topic: str, node: Node) -> None:
    url = f"{shared_broker.url}/{topic}"
    pairs = [reading(name, url) for name in ("first", "second")]
    with node:
        for flow, _ in pairs:
            client_of(shared_broker, node.deploy(flow))
        shared_broker.publish(topic, numbers(0, 200))
        eventually(lambda: all(sink.rows_seen == 200 for _, sink in pairs))
        for _, sink in pairs:
            assert [row["n"] for row in sink.rows()] == list(range(200))


def test_a_shared_subscription_divides_the_messages_and_doubles_none(
    shared_broker: Broker, topic: str, node: Node
) -> None:
    url = f"{shared_broker.url}/{topic}"
    pairs = [reading(name, url, shared="plant") for name in ("first", "second")]
    with node:
        for flow, _ in pairs:
            client_of(shared_broker, node.deploy(flow))
        shared_broker.publish(topic, numbers(0, 200))
        eventually(lambda: sum(sink.rows_seen for _, sink in pairs) >= 200)
    assert sorted(row["n"] for _, sink in pairs for row in sink.rows()) == list(range(200))


def test_two_flows_that_write_to_one_topic_add_their_rows(shared_broker: Broker, topic: str, node: Node) -> None:
    with node, Visitor(shared_broker, topic) as visitor:
        for name in ("first", "second"):
            rows = hw.read.iterable([{"of": name, "n": n} for n in range(100)])
            app = node.deploy(hw.flow(name, rows.sink(hw.to.mqtt(shared_broker.url, topic))))
            assert node.wait(app, PATIENCE_S)
        came = visitor.take(200)
    assert len(set(came)) == 200


def test_of_two_flows_with_one_client_id_the_second_takes_over_the_session_of_the_first(
    shared_broker: Broker, topic: str, node: Node
) -> None:
    """Not while the first runs; then each message has come to one of them."""
    url = f"{shared_broker.url}/{topic}"
    (first, one), (second, other) = [reading(name, url, client_id=f"gate-{topic}") for name in ("first", "second")]
    with node:
        app = node.deploy(first)
        client_of(shared_broker, app)
        with pytest.raises(
            ConnectorError, match=f"client id 'gate-{topic}' at .* is used by source 'in' of app 'first'"
        ):
            node.deploy(second)
        shared_broker.publish(topic, numbers(0, 100))
        eventually(lambda: one.rows_seen == 100)
        node.halt(app)
        shared_broker.publish(topic, numbers(100, 200))
        node.deploy(second)
        eventually(lambda: other.rows_seen >= 100)
    assert [row["n"] for row in [*one.rows(), *other.rows()]] == list(range(200))
