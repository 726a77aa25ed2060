"""Catalogs: where the pointer to a table's newest metadata is stored. `load_catalog` makes one from properties.

`base` is the interface of every catalog, `pointer` the base of those that swap one location for another, and each
catalog has a folder. Importing this package imports no client of any service.
"""

from airflow_iceberg.catalogs.load import load_catalog

__all__ = ["load_catalog"]
