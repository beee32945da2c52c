"""The store behind one contract, on LMDB or in memory; and on the same disk, locks and temporary directories."""
