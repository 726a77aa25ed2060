"""The command that looks whether everything is there: versions, the connection, its store, Spark and Java."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from airflow_iceberg.cli.advisories import advice
from airflow_iceberg.cli.output import command, emit, screen_width
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.hooks.iceberg import CAUTION, IcebergHook
from airflow_iceberg.jobs.spark import installation
from airflow_iceberg.redaction import hide, printable, without_secrets

_SELF = "everything: install airflow-iceberg again"
# What each is needed for, and what installs it. A package that is missing is no error by itself.
_PACKAGES = {
    "airflow-iceberg": "everything; this copy runs from a folder",
    "apache-airflow": _SELF,
    "apache-airflow-providers-apache-spark": "jobs on Spark: install airflow-iceberg again",
    "requests": _SELF,
    "urllib3": _SELF,
    "pyarrow": _SELF,
    "aiohttp": "tables on S3, GCS and Azure: install airflow-iceberg[s3], [gcs] or [azure]",
    "thrift": "a Hive Metastore: install airflow-iceberg[hive]",
    "pyspark": "jobs on Spark, if SPARK_HOME is not set: install airflow-iceberg[spark]",
    "pyspark-client": "jobs on Spark Connect: install airflow-iceberg[spark]",
    "duckdb": "queries and merges without Spark: install airflow-iceberg[duckdb]",
}
_OK, _FAILED, _MISSING, _OLD = "ok", "failed", "missing", "old"
_ABOUT_VERSIONS = "versions"
_INDENT = 11
# The ports of servers that are at the address of their connection; YARN's and Kubernetes' are found in other ways.
_PORTS = {"spark": 7077, "spark_connect": 15002}
_TIMEOUT_S = 5


@command
def doctor(args: Namespace) -> None:
    """Look at everything, and fail if the catalog or its store does not work."""
    rows = [*_versions(), *_spark(args.spark_conn_id), *_catalog(args)]
    if args.output == "table":
        sys.stdout.write("".join(f"{line}\n" for line in _screen(rows, screen_width())))
    else:
        emit(args, rows)
    failed = [row["what"] for row in rows if row["status"] == _FAILED and row["about"].startswith("catalog ")]
    if failed:
        raise SystemExit(printable(f"error: could not {failed[0]}; its row says why, and what to do"))


def _row(about: str, what: str, status: str, found: str) -> dict[str, Any]:
    return {"about": about, "what": what, "status": status, "found": found}


def _screen(rows: Iterable[dict[str, Any]], width: int) -> Iterator[str]:
    """Yield the lines of a report that fits one screen: what is as it should be, of the versions, takes few of them."""
    for about, group in groupby(rows, key=lambda row: row["about"]):
        yield printable(about)
        entries = [(row["status"], row["what"], row["found"]) for row in group]
        if about == _ABOUT_VERSIONS:
            fine = ", ".join(f"{what} {found}" for status, what, found in entries if status == _OK)
            entries = [(_OK, fine, ""), *(one for one in entries if one[0] != _OK)]
        for status, what, found in entries:
            text = found if status == CAUTION else f"{what}: {found}" if found else what
            lines = textwrap.wrap(printable(text), max(width - _INDENT, 20), break_on_hyphens=False) or [""]
            yield f"  {status:{_INDENT - 3}} {lines[0]}"
            yield from (" " * _INDENT + line for line in lines[1:])


def _versions() -> Iterator[dict[str, Any]]:
    yield _row(_ABOUT_VERSIONS, "Python", _OK, platform.python_version())
    for package, need in _PACKAGES.items():
        try:
            version, better = importlib.metadata.version(package), advice(package)
            yield _row(_ABOUT_VERSIONS, package, _OLD if better else _OK, f"{version}: {better}" if better else version)
        except importlib.metadata.PackageNotFoundError:
            yield _row(_ABOUT_VERSIONS, package, _MISSING, f"needed for {need}")


def _spark(conn_id: str) -> Iterator[dict[str, Any]]:
    def connection() -> str:
        from airflow.providers.common.compat.sdk import AirflowNotFoundException
        from airflow.sdk import BaseHook

        try:
            found = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise NotFoundError(
                "it does not exist; needed for jobs on Spark, unless spark_conn_id=None runs them in the task"
            ) from error
        if found.conn_type not in _PORTS:
            raise InvalidInputError(f"it is of type {found.conn_type!r}, expected {' or '.join(_PORTS)}")
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
        status = _OK if finding.works else _FAILED
        yield _row(about, finding.what, CAUTION if finding.what == CAUTION else status, finding.text)
