"""One authority for all tests of the wire, since making keys takes time."""

import pytest

from tests.links.wires import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster's authority."""
    return Cluster(tmp_path_factory.mktemp("cluster"))
