"""The real world: LMDB, sockets, threads, Spark, clocks. Everything that cannot be replayed lives here."""
