"""Operators that work with a table's history."""
