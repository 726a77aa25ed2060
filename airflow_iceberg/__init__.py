"""Apache Iceberg table operations as Airflow tasks: append, wait, maintain; committed exactly once.

Importing this package costs nothing: it imports neither pyarrow nor pyspark nor airflow. Users import from
`airflow_iceberg.operators`, `.sensors`, `.triggers` and `.hooks`, and without Airflow `load_catalog` from
`airflow_iceberg.catalogs` and `Table` from `airflow_iceberg.table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def import_name(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Import a name of a package when it is asked for (PEP 562): a DAG file pays for the operators that it uses.

    Args:
        modules: the module of each name.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(modules[name]), name)
