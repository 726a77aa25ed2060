"""An ORC file below the limit: its tail, the streams of a stripe, and how many rows are read at once."""
