"""Apache Iceberg table operations as Airflow tasks: append, wait, maintain; committed exactly once.

Importing this package costs nothing: it imports neither pyarrow nor pyspark nor airflow. Users import from
`airflow_iceberg.operators`, `.sensors`, `.triggers` and `.hooks`, and without Airflow `load_catalog` from
`airflow_iceberg.catalogs` and `Table` from `airflow_iceberg.table`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def lazy_names(package: str, **modules: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562): a DAG file imports only the modules whose names it uses.

    Args:
        modules: the module of each name, below the package or, with a dot, below `airflow_iceberg`.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        found = getattr(import_module(f"{__name__}.{module}" if "." in module else f"{package}.{module}"), name)
        setattr(sys.modules[package], name, found)  # the next time Python finds it by itself
        return found

    return get
