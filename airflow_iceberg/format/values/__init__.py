"""One value: as bytes, JSON, text and number."""
