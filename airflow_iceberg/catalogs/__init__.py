"""Catalogs: where the pointer to a table's newest metadata is stored. `load_catalog` makes one from properties.

`base` has the border that every catalog keeps, `pointer` what those share that swap one location for another, and each
catalog has a folder. Importing this package imports no client of any service.
"""

from airflow_iceberg.catalogs.load import load_catalog

__all__ = ["load_catalog"]
