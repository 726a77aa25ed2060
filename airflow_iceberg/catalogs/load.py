"""`load_catalog`: the catalog that properties describe; the client of its service is imported when it is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_iceberg.errors import InvalidInputError, check_no_password, check_text, missing_package

if TYPE_CHECKING:
    from airflow_iceberg.catalogs.base import Catalog

# type -> class in catalogs/<type>/catalog.py
_CLASSES = {
    "hadoop": "HadoopCatalog",
    "sql": "SqlCatalog",
    "rest": "RestCatalog",
    "hive": "HiveCatalog",
    "nessie": "NessieCatalog",
    "glue": "GlueCatalog",
}
_ALIASES = {**{kind: kind for kind in _CLASSES}, "jdbc": "sql"}
# Options of other programs that name whose rights are used. Without them the tables of another role, or none, would be
# found, and nobody would know why.
_ROLES = re.compile(r"client\.assume-role\..*|(?:client|s3|glue|rest)\.role-arn")
_SQL_SCHEMES = ("jdbc:", "sqlite", "postgres", "mysql", "mariadb")


def load_catalog(name: str, **properties: object) -> Catalog:
    """Return the catalog that the properties describe; nothing is connected to before the first call.

    Args:
        name: the user's name of the catalog. In a SQL catalog it is part of every table's key.
        properties: `type` ("hadoop", "sql", "rest", "hive", "nessie", "glue"), `warehouse`, `uri` and other
            properties of the type; the names of PyIceberg. Without a type it is guessed from the uri.
    Raises:
        InvalidInputError: unknown type, a property that the type needs is missing, one that asks for another role, or a
            warehouse with a password.
    """
    texts = {key: _text(value) for key, value in properties.items() if value is not None}
    check_text("the name of a catalog", name, is_name=True)
    for key, value in texts.items():
        check_text(f"the name of a property of catalog {name}", key, is_name=True)
        check_text(f"property {key!r} of catalog {name}", value, is_name=key in ("uri", "warehouse"))
    check_no_password(texts.get("warehouse", ""))
    _check_no_role(name, texts)
    kind = _kind(name, texts)
    try:
        module = import_module(f"airflow_iceberg.catalogs.{kind}.catalog")
    except ModuleNotFoundError as error:
        if kind == "hive" and str(error.name).startswith("thrift"):
            raise missing_package(
                f"catalog {name}: the Hive Metastore needs thrift", "airflow-iceberg[hive]"
            ) from error
        what = f"catalog {name}: catalogs of type {kind} need the package {error.name!r}"
        raise missing_package(what, str(error.name).partition(".")[0]) from error
    make: Callable[..., Catalog] = getattr(module, _CLASSES[kind])
    if kind == "rest":
        return make(name, texts)  # its server sends properties of the storage
    from airflow_iceberg.storage import load_file_io

    return make(name, texts, io=load_file_io(texts))


def _check_no_role(name: str, properties: Mapping[str, str]) -> None:
    asked = [key for key, value in sorted(properties.items()) if _ROLES.fullmatch(key) and value.strip()]
    asked += ["client.factory"] * ("AssumeRole" in properties.get("client.factory", ""))
    if asked:
        raise InvalidInputError(
            f"catalog {name}: property '{asked[0]}' is not supported, no role is assumed here; name a profile whose "
            "role_arn the AWS SDK assumes (client.profile-name, s3.profile-name), let the process run with that role, "
            "or remove the property"
        )


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, list | tuple) else str(value)


def _kind(name: str, properties: dict[str, str]) -> str:
    asked = properties.get("type", "").strip().lower() or guessed_type(properties)
    if asked in _ALIASES:
        return _ALIASES[asked]
    known = ", ".join(sorted(_ALIASES))
    if not asked:
        raise InvalidInputError(
            f"catalog {name}: its type is not set and cannot be derived from its uri, set type to one of {known} "
            "(in Airflow in the extra of a connection of type iceberg_catalog)"
        )
    raise InvalidInputError(f"catalog {name}: unknown type '{asked}', expected one of {known}")


def guessed_type(properties: Mapping[str, str]) -> str:
    """Return the type of catalog that an address is of, "" for none."""
    uri = properties.get("uri", "").strip().lower()
    if uri.startswith(_SQL_SCHEMES):
        return "sql"
    if uri.startswith(("http://", "https://")):
        return "rest"
    return "hive" if uri.startswith("thrift://") else ""
