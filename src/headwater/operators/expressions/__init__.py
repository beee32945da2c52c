"""Expressions over columns: frozen trees of calls, typed against a schema and computed over batches."""
