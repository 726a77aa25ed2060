"""Requests to catalog servers over HTTP, shared by REST and Nessie."""
