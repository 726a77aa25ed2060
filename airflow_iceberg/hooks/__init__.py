"""Connections made usable: `IcebergHook` and `PaimonHook`."""
