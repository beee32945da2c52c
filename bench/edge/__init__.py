"""A cluster of real nodes on this machine, joined by links as they are at the edge."""
