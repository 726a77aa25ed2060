"""Data files and delete files read as rows."""
