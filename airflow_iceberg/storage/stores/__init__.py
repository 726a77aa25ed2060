"""One module a store: how bytes are read, and how a file is created only if it is absent."""
