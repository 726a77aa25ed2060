"""Arrow types and buffers."""
