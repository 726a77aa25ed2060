"""A catalog in a table of a database, with the layout of JdbcCatalog."""
