"""What sensors wait for: conditions as values, each a pure function from a table's metadata to a decision.

`decision` says what a condition and its decision are. Not here: looking at a table (`sensors`, `triggers`).
"""
