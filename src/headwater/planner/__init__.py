"""Decides from a snapshot which node runs which instance; pure functions, which other rooms carry out."""
