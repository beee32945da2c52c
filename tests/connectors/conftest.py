"""Brokers for the tests of MQTT."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.connectors.brokers import Broker

_NUMBERS = count()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that stays up for all tests."""
    broker = Broker(tmp_path_factory.mktemp("broker")).start()
    yield broker
    broker.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own, which it may stop and kill."""
    directory = tmp_path / "broker"
    directory.mkdir()
    broker = Broker(directory).start()
    yield broker
    broker.kill()


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"test/{next(_NUMBERS)}"
