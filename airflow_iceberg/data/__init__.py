"""Rows to files and back, with Arrow (ADR 0002): what the jobs and `table` share.

Here: reading data files by field id (`read`) without deleted rows (`deletes`), writing them with statistics
(`write`, `metrics`), making rows fit a schema (`cast`). Not here: which files are read (`plan.scan`), what a commit
does with them (`commit`). Knows no catalog, no Airflow and no Spark.
"""
