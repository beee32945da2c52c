"""Traffic: what a street makes of the vehicles on it."""
