"""Branches and tags: several changes of them in one commit, the marks of changes that were made, new branches."""
