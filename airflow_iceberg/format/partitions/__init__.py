"""Partition specs and their tuples."""
