"""What a node of a cluster is told of its engine reaches it, and its metrics are those of `headwater run`."""

from pathlib import Path

import pytest

from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.pressure import PressureConfig
from headwater.model.errors import ConfigError
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes
from tests.runtime.test_metrics import scraped

FLOW = """
import headwater as hw

rows = hw.read.generator(lambda first, count: {"n": range(first, first + count)}, rows=1_000, name="made")
flow = hw.flow("few", rows.filter(hw.col("n") < 400, name="below").sink(hw.to.nothing(), name="end"))
"""


def test_budgets_policy_and_consumption_are_those_of_the_engine(tmp_path: Path) -> None:
    with FewNodes(tmp_path) as few:
        node = few.add(memory=1 << 20, disk=8 << 20, policy=PolicyName.ROUND_ROBIN, consume="7")
        config = node.engine.config
        assert config.pressure == PressureConfig(memory_bytes=1 << 20, disk_bytes=8 << 20)
        assert (config.policy, config.consumption) == (PolicyName.ROUND_ROBIN, Consumption("at-most", 7))
        status = node.engine.status()
        assert (status.memory_bytes, status.disk_bytes, status.policy) == (1 << 20, 8 << 20, "round-robin")


def test_a_node_serves_metrics_of_all_that_it_has_of_apps(tmp_path: Path) -> None:
    """Two apps of one flow are told apart; nothing is served unless it is asked for, nor after the node has ended."""
    (tmp_path / "few.py").write_text(FLOW)
    with FewNodes(tmp_path) as few:
        node = few.add(metrics="127.0.0.1:0", policy=PolicyName.ROUND_ROBIN)
        assert few.add().metrics_url is None
        at = {"made": node.own.address}
        with few.client(0) as cluster:
            names = [cluster.submit(tmp_path / "few.py", name=name, at=at)[0].app for name in ("one", "two")]
            results = [cluster.wait(name, PATIENCE_S) for name in names]
        url = node.metrics_url
        assert url is not None
        assert url.startswith("http://127.0.0.1:")
        values = scraped(url)
        for result in results:
            assert values["headwater_rows_in_total", (("app", result.id),)] == 1_000
        assert values["headwater_node_info", (("policy", "round-robin"), ("pressure", "flowing"))] == 1
        few.stop(0)
        with pytest.raises(OSError, match="refused"):
            scraped(url)


def test_a_metrics_port_that_is_taken_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with FewNodes(tmp_path) as few:
        node = few.add(metrics="127.0.0.1:0")
        assert node.metrics_url is not None
        port = node.metrics_url.rpartition(":")[2].removesuffix("/metrics")
        with pytest.raises(ConfigError, match=f"metrics cannot be served on 127.0.0.1:{port}: "):
            few.add(metrics=f"127.0.0.1:{port}")
