"""How DuckDB is asked for the rows of a query, in each of its versions."""
