"""Writers and maintenance on one table, in processes that are killed again and again; then a judge counts the rows.

python -m tests.stress --seconds 600 --catalog sqlite --format-version 2 --seed 1
"""
