"""Puts together what touches the real world: LMDB, sockets, threads, Spark, clocks. Nothing here can be replayed."""
