"""The store behind one contract: LMDB, memory; and what else of a disk is held: locks and temporary directories."""
