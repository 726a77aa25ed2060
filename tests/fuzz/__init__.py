"""Damaged and hostile files give our own errors, in bounded time and memory, whatever stands in them.

`targets` says what is done with an input, `mutation` (with `documents` and `containers`) makes inputs from the samples
in `corpus`, `runner` holds each one to its limits, in processes that may die. `crashers` are inputs that once broke a
rule. `python -m tests.fuzz --runs 1000000` is the long run, `tests/fuzz/test_fuzz.py` the short one.
"""
