"""Manifests and manifest lists: entries, and their Avro form."""
