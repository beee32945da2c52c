"""Spark tasks, or threads, on the node's own machine as the pool that runs turns."""
