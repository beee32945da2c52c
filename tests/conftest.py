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

# Tests of what is pure: they start no Spark, open no socket and no process. `./dev test --pure` runs these alone.
PURE: Final = frozenset({"model", "operators", "dataflow", "engine", "overlay", "planner", "control", "sim", "seeds"})
IN_THE_WORLD: Final = frozenset({"spark_node", "thread_node", "node", "spark"})  # fixtures

CHECKOUT: Final = Path(__file__).resolve().parent.parent
OF_TOOLS: Final = {".pytest_cache", ".hypothesis", ".coverage"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know `--pure`."""
    parser.addoption("--pure", action="store_true", help="only tests without Spark, sockets and processes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what touches the world, if that is wanted."""
    if config.getoption("--pure"):
        pure = [item for item in items if _is_pure(item)]
        config.hook.pytest_deselected(items=[item for item in items if not _is_pure(item)])
        items[:] = pure


def _is_pure(item: pytest.Item) -> bool:
    room = item.path.relative_to(CHECKOUT / "tests").parts[0]
    fixtures = set(getattr(item, "fixturenames", ()))
    is_worldly = any(item.get_closest_marker(name) for name in ("spark", "world"))
    return (room in PURE or room == "test_floor_plan.py") and not is_worldly and not fixtures & IN_THE_WORLD


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
