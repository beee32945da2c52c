"""The host of instances: runs them for stewards, carries their rows, and moves their state."""
