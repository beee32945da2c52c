"""Columns and packed rows: what operators do to many values at once."""
