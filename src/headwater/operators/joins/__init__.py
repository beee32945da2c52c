"""Joins of two streams, within windows or within an interval."""
