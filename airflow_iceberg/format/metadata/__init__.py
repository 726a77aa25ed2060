"""Table metadata: its JSON form, its updates and requirements."""
