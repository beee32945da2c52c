"""The simulator (deterministic, by seed): a virtual clock, a network and disks that fail, and checks of the outcome."""
