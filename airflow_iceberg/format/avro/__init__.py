"""Avro container files and their records as columns."""
