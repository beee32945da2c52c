"""Who is there and who owns an id: the ring, its trees, and the detection of failures. Pure machines."""
