"""The places where tables are raced for: for each catalog, how a test gets the properties of one without tables.

A function takes the test's request, by which it starts the servers of `conftest`, and the test's own directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import requests
import sqlalchemy

from airflow_iceberg.catalogs import load_catalog
from tests.catalogs.hive_contract import empty_metastore
from tests.services.gcs import BUCKET as GCS_BUCKET
from tests.services.glue import KEYS
from tests.services.seaweedfs import BUCKET as S3_BUCKET

Properties = dict[str, str]
Maker = Callable[[pytest.FixtureRequest, Path], Properties]

# The hash of a reference of Nessie before its first commit, in each server.
NO_ANCESTOR = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
LOCKS = {"engine.hive.lock-enabled": "true", "iceberg.hive.lock-timeout-ms": "600000"}


def _below(path: Path) -> str:
    return f"{path.as_uri()}/warehouse"


def sqlite(_request: pytest.FixtureRequest, path: Path) -> Properties:
    return {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": _below(path)}


def postgresql(request: pytest.FixtureRequest, path: Path) -> Properties:
    server, database = request.getfixturevalue("postgresql"), f"race_{uuid.uuid4().hex}"
    engine = sqlalchemy.create_engine(server.uri(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"create database {database}")
    engine.dispose()
    return {"type": "sql", "uri": server.uri(database), "warehouse": _below(path)}


def mariadb(request: pytest.FixtureRequest, path: Path) -> Properties:
    return {"type": "sql", "uri": request.getfixturevalue("mariadb").new_database(), "warehouse": _below(path)}


def local(_request: pytest.FixtureRequest, path: Path) -> Properties:
    return {"type": "hadoop", "warehouse": _below(path)}


def s3(request: pytest.FixtureRequest, _path: Path) -> Properties:
    server = request.getfixturevalue("seaweedfs")
    return {"type": "hadoop", "warehouse": f"s3://{S3_BUCKET}/{uuid.uuid4().hex}", **server.s3_properties}


def gcs(request: pytest.FixtureRequest, _path: Path) -> Properties:
    server = request.getfixturevalue("gcs")
    return {"type": "hadoop", "warehouse": f"gs://{GCS_BUCKET}/{uuid.uuid4().hex}", **server.properties()}


def adls(request: pytest.FixtureRequest, _path: Path) -> Properties:
    server = request.getfixturevalue("azurite")
    return {"type": "hadoop", "warehouse": f"abfs://lake/{uuid.uuid4().hex}", **server.properties()}


def hdfs(request: pytest.FixtureRequest, _path: Path) -> Properties:
    server = request.getfixturevalue("hdfs")
    return {"type": "hadoop", "warehouse": f"hdfs://{server.authority}/{uuid.uuid4().hex}"}


def webhdfs(request: pytest.FixtureRequest, _path: Path) -> Properties:
    server = request.getfixturevalue("hdfs")
    warehouse = f"webhdfs://{server.web_authority}/{uuid.uuid4().hex}"
    return {"type": "hadoop", "warehouse": warehouse, "hdfs.user": "root"}


def rest(request: pytest.FixtureRequest, _path: Path) -> Properties:
    return dict(request.getfixturevalue("iceberg_rest").catalog_properties)


def rest_seaweedfs(request: pytest.FixtureRequest, _path: Path) -> Properties:
    return dict(request.getfixturevalue("seaweedfs").catalog_properties)


def nessie(request: pytest.FixtureRequest, path: Path) -> Properties:
    server = {"type": "nessie", "uri": request.getfixturevalue("nessie"), "warehouse": _below(path)}
    branch = f"race-{uuid.uuid4().hex[:8]}"
    load_catalog("prod", **server).references.create_branch(branch, source=f"main@{NO_ANCESTOR}")
    return {**server, "ref": branch}


def glue(request: pytest.FixtureRequest, path: Path) -> Properties:
    address = request.getfixturevalue("glue_address")
    requests.post(f"{address}/moto-api/reset", timeout=10).raise_for_status()
    return {"type": "glue", "glue.endpoint": address, "warehouse": _below(path), **KEYS}


def hive(version: str, mode: Mapping[str, str]) -> Maker:
    """A metastore, and whether its tables are committed under locks."""

    def properties(request: pytest.FixtureRequest, path: Path) -> Properties:
        server = request.getfixturevalue(f"hive_{version}")
        empty_metastore(server.uri)
        return {"type": "hive", "uri": server.uri, "warehouse": f"file:{path}/warehouse", **mode}

    return properties
