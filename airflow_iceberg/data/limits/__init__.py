"""What the bytes of a data file may become in memory: looked at before Arrow is asked, which has no limit for it."""
