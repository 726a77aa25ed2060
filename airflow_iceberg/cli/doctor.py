"""The command that looks whether everything is there: versions, the connection, its store, Spark and Java."""

from __future__ import annotations

import importlib.metadata
import platform
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from airflow_iceberg.cli.output import command, emit
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.jobs.spark import installation
from airflow_iceberg.redaction import hide, printable, without_secrets

_PACKAGES = (
    "airflow-iceberg",
    "apache-airflow",
    "apache-airflow-providers-apache-spark",
    "pyarrow",
    "pyspark",
    "pyspark-client",
    "duckdb",
)
_OK, _FAILED, _MISSING = "ok", "failed", "missing"


@command
def doctor(args: Namespace) -> None:
    """Look at everything, and fail if the catalog or its store does not work."""
    rows = [*_versions(), *_spark(args.spark_conn_id), *_catalog(args)]
    emit(args, rows)
    failed = [row["what"] for row in rows if row["status"] == _FAILED and row["about"].startswith("catalog ")]
    if failed:
        raise SystemExit(printable(f"error: could not {failed[0]}; its row says why, and what to do"))


def _row(about: str, what: str, status: str, found: str) -> dict[str, Any]:
    return {"about": about, "what": what, "status": status, "found": found}


def _versions() -> Iterator[dict[str, Any]]:
    yield _row("versions", "Python", _OK, platform.python_version())
    for package in _PACKAGES:
        try:
            yield _row("versions", package, _OK, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield _row("versions", package, _MISSING, "")


def _spark(conn_id: str) -> Iterator[dict[str, Any]]:
    def connection() -> str:
        from airflow.sdk import BaseHook

        found = BaseHook.get_connection(conn_id)
        place = "".join(filter(None, (found.host, f":{found.port}" if found.port else "")))
        return f"type {found.conn_type}, {hide('host', place) or 'no host'}"

    def spark() -> str:
        home = installation.spark_home()
        version = installation.spark_version(home)
        installation.check_installation()
        return f"{'.'.join(map(str, version)) if version else 'of unknown version'} in {home}"

    def java() -> str:
        return installation.environment()["JAVA_HOME"]

    yield _tried("Spark", f"connection {conn_id}", connection)
    yield _tried("Spark", "Spark of this machine", spark)
    yield _tried("Spark", "Java for this Spark", java)


def _tried(about: str, what: str, look: Callable[[], str]) -> dict[str, Any]:
    """Return what a look has found; neither Spark nor its connection has to be there."""
    try:
        return _row(about, what, _OK, look())
    except IcebergError as error:
        return _row(about, what, _MISSING, without_secrets(str(error)))
    except Exception as error:  # noqa: BLE001 - what Airflow raises for a connection depends on its version
        return _row(about, what, _MISSING, without_secrets(f"{type(error).__name__}: {error}"))


def _catalog(args: Namespace) -> Iterator[dict[str, Any]]:
    about = f"catalog {args.iceberg_conn_id}"
    for finding in IcebergHook(args.iceberg_conn_id).findings():
        yield _row(about, finding.what, _OK if finding.works else _FAILED, finding.text)
