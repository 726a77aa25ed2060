"""A catalog in a Nessie server."""
