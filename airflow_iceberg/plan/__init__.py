"""Decisions about a table, made from values alone: no I/O, no clock, no random numbers.

Here: which files a scan reads, which files and snapshots an operation selects, the meaning of ALTER's words. Not here:
reading rows (`data`), applying a change (`commit`). This file imports nothing, so that `plan.new_snapshot` loads
neither Arrow nor a SQL parser.
"""
