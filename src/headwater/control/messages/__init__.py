"""The messages between nodes, typed and bounded, and the events and effects of their machines."""
