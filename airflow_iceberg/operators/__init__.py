"""Operators: each is a hook, a plan, a job and a commit, in this order; what any of them means is decided below them.

Here: nothing to import but the modules themselves; `write` brings rows in, `evolve` creates and changes tables.
"""
