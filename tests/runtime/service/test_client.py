"""The Python client: what it refuses by itself, before a node is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater as hw
from headwater.client.cluster import Cluster
from headwater.loading.flow_file import load_flows
from headwater.model.errors import ConfigError
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes


def test_a_flow_that_was_built_here_cannot_be_submitted_and_the_reason_is_told(tmp_path: Path) -> None:
    """Whoever knows `hw.run(flow)` will try."""
    flow: str = hw.flow("here", hw.read.iterable([1]).sink(hw.to.nothing()))  # type: ignore[assignment]
    told = r"cannot be given a Flow, since flows travel as text: give the file .* 'flow\.py'"
    with FewNodes(tmp_path) as few:
        few.add()
        with few.client(0) as cluster:
            with pytest.raises(ConfigError, match=told):
                cluster.submit(flow)
            with pytest.raises(ConfigError, match=told):
                cluster.upgrade("here", flow)


def test_whoever_says_neither_certs_nor_insecure_is_told_to() -> None:
    """Plaintext is never a default."""
    with pytest.raises(ConfigError, match="--certs"):
        Cluster("127.0.0.1:1")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without a name")
def test_a_user_whom_the_machine_knows_by_a_number_alone_is_called_by_that() -> None:
    """As in containers that are run with some number."""
    story = (
        "import os\n"
        "from headwater.client.cluster import user_credentials\n"
        "for name in ('LOGNAME', 'USER', 'LNAME', 'USERNAME'): os.environ.pop(name, None)\n"
        "os.setuid(54321)\n"
        "print(user_credentials(None, insecure=True).identity.name)\n"
    )
    told = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, timeout=500, check=True)
    assert told.stdout == "54321\n"


FLOW = """
import headwater as hw

rows = hw.read.generator(lambda first, count: {"n": range(first, first + count)}, rows=100)
flow = hw.flow("halves", rows.filter(hw.col("n") < 50).sink(hw.to.nothing()))
"""


def test_a_run_here_and_an_app_in_a_cluster_end_with_results_of_one_kind(tmp_path: Path) -> None:
    """The same flow has the same figures in both; what only one of them can know is empty in the other."""
    (tmp_path / "halves.py").write_text(FLOW)
    here = hw.run(load_flows(str(tmp_path / "halves.py"))[0], spark=False)
    with FewNodes(tmp_path) as few:
        few.add()
        with few.client(0) as cluster:
            cluster.submit(tmp_path / "halves.py")
            there = cluster.wait("halves", PATIENCE_S)
            status = cluster.status("halves")
    for result in (here, there):
        assert isinstance(result, hw.RunResult)
        assert (result.name, result.rows_in, result.rows_out, result.waiting) == ("halves", 100, 50, 0)
        assert (result.is_balanced, result.errors, result.error) == (True, [], "")
        assert result.ledger.dropped == {"filtered": 50}
    assert (here.state, here.latency.rows > 0, len(here.operators)) == ("finished", True, 3)
    assert (here.id, here.parts, here.version) == ("", [], None)
    assert (there.id, there.parts, there.version, there.homes) == (status.id, status.parts, 1, status.homes)
    assert (there.latency.p50, there.operators, there.started_us) == (None, (), None)


TELLING = """
import headwater as hw

rows = hw.read.json({lines!r}, name="lines")

def spoilt(batch):
    return {{"n": [float("nan")] * batch.num_rows}}

flow = hw.flow("telling", rows.map(spoilt).sink(hw.to.json({out!r})))
"""


def test_a_status_has_what_sources_and_sinks_say(tmp_path: Path) -> None:
    """On whichever node they are."""
    (tmp_path / "lines.json").write_text("")
    (tmp_path / "more.json").write_text('{"n": 1}\n')
    flow = TELLING.format(lines=str(tmp_path / "*e*.json"), out=str(tmp_path / "out.jsonl"))
    (tmp_path / "telling.py").write_text(flow)
    with FewNodes(tmp_path) as few:
        few.add()
        with few.client(0) as cluster:
            cluster.submit(tmp_path / "telling.py")
            [part] = cluster.wait("telling", PATIENCE_S).parts
    assert [source.told for source in part.sources] == [f"{tmp_path / 'lines.json'} is empty"]
    assert [sink.told for sink in part.sinks] == ["1 times NaN or infinity, written as null"]
