"""Row-level operations by SQL, merge and update: rows get new values, or are deleted, and new rows are added."""
