"""Operators that change branches and tags: metadata alone, no job."""
