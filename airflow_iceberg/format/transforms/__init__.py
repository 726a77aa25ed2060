"""Partition transforms, for one value and for a column."""
