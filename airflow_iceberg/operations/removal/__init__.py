"""What expiries and the removal of orphan files need besides the file inventory."""
