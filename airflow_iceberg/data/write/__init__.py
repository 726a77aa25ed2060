"""Rows written as data files: partitioned, sorted, measured."""
