"""The twin: the same graph as a stock Structured Streaming query, on any Spark master."""
