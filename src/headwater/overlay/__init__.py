"""Membership, ownership of ids and failure detection: a Pastry ring and Scribe trees over it. Pure machines."""
