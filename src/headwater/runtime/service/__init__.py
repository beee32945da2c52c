"""A node of a cluster: the state machines of `control`, driven by a real clock, a real wire and a real engine."""
