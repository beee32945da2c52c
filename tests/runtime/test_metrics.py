"""What Prometheus reads is what the node's status says, at the moment it asks."""

import socket
import urllib.request
from collections.abc import Iterator

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater as hw
from headwater.model.errors import ConfigError
from headwater.runtime.metrics import serve_metrics
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig

Sample = tuple[str, tuple[tuple[str, str], ...]]


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Change nothing."""
    return batch


@pytest.fixture
def node() -> Iterator[Node]:
    """Return a node that has run a flow of 1,000 rows, of which 400 pass."""
    rows = hw.read.iterable(range(1_000)).map(same, name="same").filter(hw.col("value") < 400, name="few")
    with Node(NodeConfig(spark=False, workers=2, sample_share=1.0)) as node:
        app = node.deploy(hw.flow("measured", rows.sink(hw.to.nothing(), name="end")))
        assert node.wait(app, 60)
        yield node


def scraped(url: str) -> dict[Sample, float]:
    """Ask as Prometheus does, and return every value by name and labels."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


def test_rows_turns_and_times_of_every_operator_are_told(node: Node) -> None:
    server = serve_metrics(node, 0)
    try:
        values = scraped(server.url)
    finally:
        server.close()
    chain = (("app", "measured"), ("kind", "chain"), ("operator", "same → few"))
    assert values["headwater_operator_rows_in_total", chain] == 1_000
    assert values["headwater_operator_rows_out_total", chain] == 400
    assert values["headwater_operator_waiting_rows", chain] == 0
    assert values["headwater_operator_turns_total", chain] > 0
    assert values["headwater_operator_compute_seconds_total", chain] > 0
    assert values["headwater_rows_in_total", (("app", "measured"),)] == 1_000
    assert values["headwater_rows_out_total", (("app", "measured"),)] == 400


def test_the_ledger_is_told_term_by_term_and_adds_up(node: Node) -> None:
    server = serve_metrics(node, 0)
    try:
        values = scraped(server.url)
    finally:
        server.close()
    terms = {dict(labels)["term"]: value for (name, labels), value in values.items() if name == "headwater_ledger_rows"}
    assert values["headwater_ledger_balanced", (("app", "measured"),)] == 1
    assert (terms["rows_in"], terms["rows_out"], terms["dropped_filtered"]) == (1_000, 400, 600)


def test_latency_and_the_node_itself_are_told(node: Node) -> None:
    server = serve_metrics(node, 0)
    try:
        values = scraped(server.url)
    finally:
        server.close()
    quantiles = (("app", "measured"), ("quantile", "0.99"), ("window", "all"))
    assert values["headwater_latency_seconds", quantiles] > 0
    assert (values["headwater_workers", ()], values["headwater_pressure_level", ()]) == (2, 0)
    assert values["headwater_node_info", (("policy", "longest-queue"), ("pressure", "flowing"))] == 1
    assert all(name.startswith("headwater_") for name, _ in values)


def test_only_this_machine_can_ask_and_a_taken_port_is_refused_with_a_sentence(node: Node) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"metrics cannot be served on 127\.0\.0\.1"):
            serve_metrics(node, taken.getsockname()[1])
