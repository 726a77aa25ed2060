"""Existing files that join a table without being rewritten: what their footers tell, and whether they fit the table."""
