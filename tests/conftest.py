"""What all tests share: one node on Spark for the whole run, since a session takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig

settings.register_profile("patient", settings(), deadline=None)  # no test fails for being slow on a busy machine
settings.load_profile("patient")

CHECKOUT: Final = Path(__file__).resolve().parent.parent
OF_TOOLS: Final = {".pytest_cache", ".hypothesis", ".coverage"}


@pytest.fixture(scope="session", autouse=True)
def a_clean_checkout() -> Iterator[None]:
    """What a run writes goes where it was told to: the tests leave nothing behind in the directory they run in."""
    before = {path.name for path in CHECKOUT.iterdir()}
    yield
    left = {path.name for path in CHECKOUT.iterdir()} - before - OF_TOOLS
    assert not left, f"the tests left {', '.join(sorted(left))} in {CHECKOUT}"


@pytest.fixture(scope="session")
def spark_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose workers are Spark tasks. Tests deploy flows with names of their own on it."""
    with Node(NodeConfig(store=tmp_path_factory.mktemp("store"), workers=2)) as node:
        yield node


@pytest.fixture
def thread_node(tmp_path: Path) -> Iterator[Node]:
    """A node whose workers are threads of this process."""
    with Node(NodeConfig(store=tmp_path / "store", workers=2, spark=False)) as node:
        yield node


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.spark)])
def node(request: pytest.FixtureRequest) -> Node:
    """Either of them: the two pools keep the same contract."""
    name = "spark_node" if request.param == "spark" else "thread_node"
    found: Node = request.getfixturevalue(name)
    return found
