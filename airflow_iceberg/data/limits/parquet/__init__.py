"""A Parquet file below the limit: its footer, the pages of a row group, and how many rows are read at once."""
