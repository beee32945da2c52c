"""PySpark's stateful processors, run unchanged: their handle, variables, rows and types."""
