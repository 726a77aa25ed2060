"""Decisions about a table, taken from values alone: no I/O, no clock, no dice.

Here: predicates and how they prune (`filters`, `projection`, `metrics`), which files a scan reads (`scan`), what a
sensor waits for (`waiting`). Not here: reading rows (`data`), applying a change (`commit`). Nothing is imported by this
file, so that `plan.new_snapshot` costs no Arrow and no SQL parser.
"""
