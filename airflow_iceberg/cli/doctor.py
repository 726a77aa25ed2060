"""The command that looks whether everything is there: versions, the connection, its store, Spark and Java."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow_iceberg.cli.advisories import advice
from airflow_iceberg.cli.output import command, emit
from airflow_iceberg.errors import IcebergError, StorageError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.jobs.spark import installation
from airflow_iceberg.redaction import hide, printable, without_secrets

_PACKAGES = (
    "airflow-iceberg",
    "apache-airflow",
    "apache-airflow-providers-apache-spark",
    "requests",
    "urllib3",
    "pyarrow",
    "aiohttp",
    "thrift",
    "pyspark",
    "pyspark-client",
    "duckdb",
)
_OK, _FAILED, _MISSING, _OLD = "ok", "failed", "missing", "old"
# The ports of servers that are at the address of their connection; YARN's and Kubernetes' are found in other ways.
_PORTS = {"spark_connect": 15002, "spark": 7077}
_TIMEOUT_S = 5


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
            version, better = importlib.metadata.version(package), advice(package)
            yield _row("versions", package, _OLD if better else _OK, f"{version}: {better}" if better else version)
        except importlib.metadata.PackageNotFoundError:
            yield _row("versions", package, _MISSING, "")


def _spark(conn_id: str) -> Iterator[dict[str, Any]]:
    def connection() -> str:
        from airflow.sdk import BaseHook

        found = BaseHook.get_connection(conn_id)
        place = "".join(filter(None, (found.host, f":{found.port}" if found.port else "")))
        if found.conn_type == "spark_connect" or place.startswith("spark://"):
            _reach(place.rpartition("//")[2], _PORTS[str(found.conn_type)])
        return f"type {found.conn_type}, {hide('host', place) or 'no host'}"

    def spark() -> str:
        home = installation.spark_home()
        version = installation.spark_version(home)
        installation.check_installation()
        return f"{'.'.join(map(str, version)) if version else 'of unknown version'} in {home}"

    def java() -> str:
        home = installation.environment()["JAVA_HOME"]
        return f"Java {installation.java_version(Path(home))} in {home}"

    yield _tried("Spark", f"connection {conn_id}", connection)
    yield _tried("Spark", "Spark of this machine", spark)
    yield _tried("Spark", "Java for this Spark", java)


def _reach(place: str, port: int) -> None:
    """Connect to one of the servers of an address, as `a:7077,b:7077`."""
    refused = []
    for address in place.split(","):
        host, _, number = address.rpartition(":") if ":" in address else (address, "", "")
        try:
            socket.create_connection((host, int(number or port)), timeout=_TIMEOUT_S).close()
            return
        except (OSError, ValueError) as error:
            refused.append(f"{host}:{number or port} ({error})")
    raise StorageError(f"could not connect to {', '.join(refused)}; check host and port, and whether Spark runs there")


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
