"""Branches, tags and moves of them: one module for each operation, and what they share."""
