"""Tests of nodes as a cluster, over real sockets on this machine."""
