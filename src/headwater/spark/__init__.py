"""Spark's session and its JVM, shared by the workers and the twin."""
