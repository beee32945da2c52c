"""The imagined world: a virtual clock, a network and disks that fail by seed, and those who check what comes of it."""
