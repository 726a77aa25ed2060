"""What was done to a table: which runs made its snapshots, how two states differ, and taking a run back."""
