"""What a job reads: files of each format, in units."""
