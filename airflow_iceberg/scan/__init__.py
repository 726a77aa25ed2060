"""Reading a table: `TableScan`, the incremental scan, and the metadata tables."""
