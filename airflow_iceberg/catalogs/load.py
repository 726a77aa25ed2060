"""`load_catalog`: the catalog that properties describe.

Importing this module imports no client of any service; a catalog's own module does that when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import check_no_password

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog

__all__ = ["load_catalog"]

_HADOOP, _SQL, _REST, _HIVE, _NESSIE, _GLUE = "hadoop", "sql", "rest", "hive", "nessie", "glue"
_ALIASES = {kind: kind for kind in (_HADOOP, _SQL, _REST, _HIVE, _NESSIE, _GLUE)} | {"jdbc": _SQL}
_SQL_SCHEMES = ("jdbc:", "sqlite", "postgres", "mysql", "mariadb")


def load_catalog(name: str, **properties: object) -> Catalog:
    """Return the catalog that the properties describe; nothing is connected to before the first call.

    Args:
        name: the user's name of the catalog. In a SQL catalog it is part of every table's key.
        properties: `type` ("hadoop", "sql", "rest", "hive", "nessie", "glue"), `warehouse`, `uri` and other
            properties of the type; the names of PyIceberg. Without a type it is guessed from the uri.
    Raises:
        InvalidInputError: unknown type, a property that the type needs is missing, or a warehouse with a password.
    """
    texts = {key: str(value) for key, value in properties.items() if value is not None}
    check_no_password(texts.get("warehouse", ""))
    kind = _kind(name, texts)
    if kind == _REST:
        from airflow_iceberg.catalogs.rest.catalog import RestCatalog

        return RestCatalog(name, texts)  # its server has a say in how files are reached
    from airflow_iceberg.storage import load_file_io

    io = load_file_io(texts)
    if kind == _HADOOP:
        from airflow_iceberg.catalogs.hadoop.catalog import HadoopCatalog

        return HadoopCatalog(name, texts, io=io)
    if kind == _HIVE:
        try:
            from airflow_iceberg.catalogs.hive.catalog import HiveCatalog
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("thrift"):
                raise
            raise InvalidInputError(
                f"catalog {name}: the Hive Metastore needs thrift, run: pip install 'airflow-iceberg[hive]'"
            ) from error
        return HiveCatalog(name, texts, io=io)
    if kind == _NESSIE:
        from airflow_iceberg.catalogs.nessie.catalog import NessieCatalog

        return NessieCatalog(name, texts, io=io)
    if kind == _GLUE:
        from airflow_iceberg.catalogs.glue.catalog import GlueCatalog

        return GlueCatalog(name, texts, io=io)
    from airflow_iceberg.catalogs.sql.catalog import SqlCatalog

    return SqlCatalog(name, texts, io=io)


def _kind(name: str, properties: dict[str, str]) -> str:
    asked = properties.get("type", "").strip().lower() or _guess(properties)
    if asked in _ALIASES:
        return _ALIASES[asked]
    known = ", ".join(sorted(_ALIASES))
    if not asked:
        raise InvalidInputError(
            f"catalog {name}: its type is not given and its uri doesn't tell, set type to one of {known} "
            "(in Airflow in the extra of a connection of type iceberg_catalog)"
        )
    raise InvalidInputError(f"catalog {name}: unknown type '{asked}', expected one of {known}")


def _guess(properties: dict[str, str]) -> str:
    uri = properties.get("uri", "").strip().lower()
    if uri.startswith(_SQL_SCHEMES):
        return _SQL
    if uri.startswith(("http://", "https://")):
        return _REST
    return _HIVE if uri.startswith("thrift://") else ""
