"""A catalog in a folder of a file system: version files, created only if absent."""
