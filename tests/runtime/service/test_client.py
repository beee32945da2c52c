"""The Python client: what it refuses by itself, before a node is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater as hw
from headwater.client.cluster import Cluster
from headwater.model.errors import ConfigError
from tests.runtime.service.few_nodes import FewNodes


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
    told = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout == "54321\n"
