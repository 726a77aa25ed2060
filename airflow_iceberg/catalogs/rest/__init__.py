"""A catalog server with the Iceberg REST protocol."""
