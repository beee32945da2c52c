"""The twin: the same graph as a stock Structured Streaming query, on any Spark master.

`query.run_structured` runs it, `refusals.refusals` says what it cannot do. Nothing is imported here: executors load the
steps of a query from this package, and need not load the driver's part.
"""
