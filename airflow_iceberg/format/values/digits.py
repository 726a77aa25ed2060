"""Counts that are written as texts: in the summaries of snapshots, in properties, in names and headers of files."""

from __future__ import annotations

MAX_LONG = 2**63 - 1
# Python refuses to read some thousands of digits with a bare ValueError.
_MOST_DIGITS = len(str(MAX_LONG))


def whole_number(text: str) -> int | None:
    """Return the number from 0 to the largest long that a text of ASCII digits is; None for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if number <= MAX_LONG else None
