"""Merge: the job that changes rows of a table, and adds rows, as SQL says; also updates, and deletes by any SQL."""
