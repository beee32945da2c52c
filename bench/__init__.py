"""Benchmarks: what Headwater is compared with, side by side in one run."""
