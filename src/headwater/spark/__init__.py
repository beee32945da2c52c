"""Spark's session and its JVM: what the workers and the twin share."""
