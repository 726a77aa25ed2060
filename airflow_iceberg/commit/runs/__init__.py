"""The runs of a task: its commits in the history of a branch, and where their rows are now."""
