"""Changes of a table as people write them, and what they make of its metadata."""
