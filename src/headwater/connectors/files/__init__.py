"""Files of lines and of Parquet, read from a position and written exactly once."""
