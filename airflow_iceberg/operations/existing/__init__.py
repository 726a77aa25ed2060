"""What operations on existing files share: which files there are, and new tables that get them."""
