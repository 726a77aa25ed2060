"""Names in a Hive Metastore: which it takes, and how it spells them."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_iceberg.catalogs.names import join_levels
from airflow_iceberg.errors import InvalidInputError


def hive_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a metastore keeps them: it ignores their case."""
    return tuple(name.lower() for name in names)


def check_names(catalog: str, namespace: Iterable[str], tables: Iterable[str]) -> None:
    """Refuse names that a metastore takes for others.

    Raises:
        InvalidInputError: one of them is such a name.
    """
    namespace = tuple(namespace)
    for each in (*namespace, *tables):
        if each.startswith("@") or each != each.strip():
            raise InvalidInputError(
                f"{join_levels((each,))} cannot be a name in catalog {catalog}: a Hive Metastore cuts off blanks at "
                f"its ends, and takes what begins with @ for the name of a catalog of its own; rename it"
            )
    for each in namespace:
        if each.endswith(("#", "!")):
            raise InvalidInputError(
                f"{join_levels((each,))} cannot be a namespace in catalog {catalog}: a Hive Metastore makes it, but "
                f"takes a # or ! at its end for its own sign of a database without a name, and can no longer drop it; "
                f"rename it"
            )
