"""A catalog behind the Iceberg REST protocol."""
