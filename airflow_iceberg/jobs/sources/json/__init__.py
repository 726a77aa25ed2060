"""JSON lines: their text, the types of values over a whole source, the columns of a table."""
