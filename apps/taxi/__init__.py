"""Taxi demand: where passengers will be picked up in the next half hour."""
