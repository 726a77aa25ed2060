"""Sensors: wait for snapshots of Iceberg and Paimon tables."""
