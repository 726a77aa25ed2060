"""Predicates: from SQL to a bound tree, as JSON, projected to partitions, and what statistics prove about files."""
