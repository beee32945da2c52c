"""A node of a cluster at work: the machines of `node/` driven by a real clock, a real wire and a real engine."""
