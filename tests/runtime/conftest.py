"""What the tests of the runtime share: a standalone Spark cluster for those that ask for one."""

from tests.runtime.cluster import standalone_cluster

__all__ = ["standalone_cluster"]
