"""The servers that several test files of catalogs share: each is started once, by the first test that asks for it.

Who uses one takes names of his own in it (a warehouse, a branch, a database), or empties it before his test begins.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator

import pytest

from airflow_iceberg.catalogs.base import Catalog
from tests.catalogs.contract import new_catalog
from tests.catalogs.java import DRIVERS
from tests.services.glue import start_glue
from tests.services.hive_metastore import HiveMetastore, metastore_2_3, metastore_2_3_9
from tests.services.hive_metastore_4 import metastore_4, metastore_4_jars
from tests.services.iceberg_rest import IcebergRest
from tests.services.launch import HOST, maven_jars
from tests.services.mariadb import MariaDB
from tests.services.nessie import start_nessie
from tests.services.stores import azurite, gcs, hdfs, seaweedfs  # noqa: F401
from tests.support.iceberg_java import SMALL, IcebergJava
from tests.support.postgresql import PASSWORD, PostgreSQL


@pytest.fixture
def catalog(properties: dict[str, str]) -> Catalog:
    """The catalog of the properties that a module gives, with a namespace."""
    return new_catalog(**properties)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    server = PostgreSQL()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    server = MariaDB()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def nessie() -> Iterator[str]:
    server, uri = start_nessie()
    yield uri
    server.stop()


@pytest.fixture(scope="session")
def glue_address() -> Iterator[str]:
    """The address of a Glue that checks versions."""
    server, address = start_glue()
    yield address
    server.stop()


@pytest.fixture(scope="session")
def iceberg_rest() -> Iterator[IcebergRest]:
    server = IcebergRest().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def hive_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A metastore 4.0.1 on a PostgreSQL of its own."""
    database = PostgreSQL()
    url = f"jdbc:postgresql://{HOST}:{database.port}/postgres"
    metastore = metastore_4(tmp_path_factory.mktemp("hive4"), database=(url, "lab", PASSWORD))
    yield metastore
    metastore.stop()
    database.remove()


@pytest.fixture(scope="session")
def hive_2_3_10(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A metastore 2.3.10 on Derby, which compares expected parameters."""
    metastore = metastore_2_3(tmp_path_factory.mktemp("hive2310"))
    yield metastore
    metastore.stop()


@pytest.fixture(scope="session")
def hive_2_3_9(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A metastore 2.3.9 on Derby, which ignores expected parameters."""
    metastore = metastore_2_3_9(tmp_path_factory.mktemp("hive239"))
    yield metastore
    metastore.stop()


@pytest.fixture(scope="session")
def iceberg_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergJava]:
    """A Spark with Iceberg Java, PostgreSQL's driver and the clients of AWS; `add_catalog` gives it the catalogs."""
    jars = sorted(glob.glob(f"{maven_jars('drivers-of-java', DRIVERS)}/*.jar"))
    settings = {**SMALL, "spark.driver.extraClassPath": ":".join(jars)}
    with IcebergJava.start(tmp_path_factory.mktemp("java").as_uri(), **settings) as java:
        yield java


@pytest.fixture(scope="session")
def iceberg_java_hive_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergJava]:
    """The same with the client of Hive 4: Spark's own is a 2.3.9, which asks with a call that Hive 4 has no more."""
    lib = metastore_4_jars()
    jars = [f"{lib}/hive-standalone-metastore-common-4.0.1.jar", f"{lib}/libthrift-0.16.0.jar"]
    settings = {**SMALL, "spark.driver.extraClassPath": ":".join(jars)}
    with IcebergJava.start(tmp_path_factory.mktemp("java4").as_uri(), **settings) as java:
        yield java
