"""Rows of a source cast to the types of a table, and checked."""
