"""Schemas: fields by id and name, their evolution and promotion."""
