"""Models that predict, and learners that learn while a stream runs."""
