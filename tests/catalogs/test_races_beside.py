"""Iceberg Java, PyIceberg and we append to one table at the same time: each row is there once, whoever reads."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.table import Table
from tests.catalogs import places
from tests.catalogs.hive_contract import NO_LOCKS
from tests.catalogs.java import add_catalog
from tests.catalogs.places import LOCKS, Maker, Properties
from tests.catalogs.races import PATIENCE, SCHEMA, THEIRS, race_beside, row
from tests.support.postgresql import PASSWORD

EAGER = {"iceberg.hive.lock-check-max-wait-ms": "200", "iceberg.hive.lock-timeout-ms": "600000"}


def new_table(catalog: Catalog, **properties: str) -> str:
    catalog.create_namespace("db", if_not_exists=True)
    name = f"db.t{uuid.uuid4().hex[:8]}"
    Table.create(catalog, name, schema=SCHEMA, properties={**PATIENCE, **properties})
    return name


def mode_of(properties: Properties) -> dict[str, str]:
    """What a table in a metastore says to all of its writers: whether they lock."""
    return {key: value for key, value in properties.items() if key == "engine.hive.lock-enabled"}


# -- Iceberg Java --------------------------------------------------------------------------------------------------


def of_hadoop(properties: Properties) -> Mapping[str, str]:
    return {"type": "hadoop", "warehouse": properties["warehouse"]}


def of_jdbc(properties: Properties) -> Mapping[str, str]:
    address = properties["uri"].rpartition("@")[2]
    return {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{address}",
        "jdbc.user": "lab",
        "jdbc.password": PASSWORD,
        "jdbc.schema-version": properties["jdbc.schema-version"],
        "warehouse": properties["warehouse"],
    }


def of_rest(properties: Properties) -> Mapping[str, str]:
    return {"type": "rest", "uri": properties["uri"]}


def of_nessie(properties: Properties) -> Mapping[str, str]:
    return {
        "catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        "uri": properties["uri"],
        "ref": properties["ref"],
        "warehouse": properties["warehouse"],
    }


def of_hive(properties: Properties) -> Mapping[str, str]:
    locks = properties["engine.hive.lock-enabled"]
    conf = {"iceberg.engine.hive.lock-enabled": locks, **EAGER}
    return {"type": "hive", "uri": properties["uri"], **{f"hadoop.{key}": value for key, value in conf.items()}}


def schema(version: str) -> Maker:
    """A catalog in PostgreSQL, in this version of JdbcCatalog's tables."""
    return lambda request, path: {**places.postgresql(request, path), "jdbc.schema-version": version}


BESIDE_JAVA: Mapping[str, tuple[Maker, Callable[[Properties], Mapping[str, str]]]] = {
    "hadoop-hdfs": (places.hdfs, of_hadoop),
    "postgresql-v0": (schema("V0"), of_jdbc),
    "postgresql-v1": (schema("V1"), of_jdbc),
    "rest": (places.rest, of_rest),
    "nessie": (places.nessie, of_nessie),
    "hive-2.3.10-locks": (places.hive("2_3_10", LOCKS), of_hive),
    "hive-2.3.10-no-locks": (places.hive("2_3_10", NO_LOCKS), of_hive),
    "hive-4-locks": (places.hive("4", LOCKS), of_hive),
    "hive-4-no-locks": (places.hive("4", NO_LOCKS), of_hive),
}


@pytest.mark.services
@pytest.mark.java
@pytest.mark.slow
class TestBesideIcebergJava:
    """Iceberg Java, in its own catalog on the same service, appends while we do."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("place", BESIDE_JAVA)
    def test_each_row_is_there_once(self, request, tmp_path, place):
        make, settings_of = BESIDE_JAVA[place]
        properties = make(request, tmp_path)
        java = request.getfixturevalue("iceberg_java_hive_4" if place.startswith("hive-4") else "iceberg_java")
        name = add_catalog(java, **settings_of(properties))  # in a database the name is part of the key
        catalog = load_catalog(name, **properties)
        table = new_table(catalog, **mode_of(properties))
        insert = f"insert into {name}.{table} values ({THEIRS}, "
        expected = race_beside(catalog, table, lambda number: java.sql(f"{insert}{number})"))
        java.sql(f"alter table {name}.{table} set tblproperties ('of-java' = '1')")
        seen = Counter((each["writer"], each["number"]) for each in java.sql(f"select * from {name}.{table}"))
        assert seen == Counter(expected)
        assert catalog.load(table).metadata.properties["of-java"] == "1"


# -- PyIceberg -----------------------------------------------------------------------------------------------------


def their_sql(properties: Properties) -> dict[str, str]:
    return {"type": "sql", "uri": properties["uri"], "warehouse": properties["warehouse"]}


def their_rest(properties: Properties) -> dict[str, str]:
    return properties


def their_hive(properties: Properties) -> dict[str, str]:
    quick = {"lock-check-min-wait-time": "0.05", "lock-check-max-wait-time": "0.2", "lock-check-retries": "1000"}
    return {"type": "hive", "uri": properties["uri"], **quick}


BESIDE_PYICEBERG = {
    "sqlite": (places.sqlite, their_sql),
    "postgresql": (places.postgresql, their_sql),
    "mariadb": (places.mariadb, their_sql),
    "rest": (places.rest, their_rest),
    "rest-seaweedfs": (places.rest_seaweedfs, their_rest),
    "glue": (places.glue, their_rest),
    # It always locks, and speaks no version of Hive but those up to 3.
    "hive-2.3.10-locks": (places.hive("2_3_10", LOCKS), their_hive),
    "hive-2.3.9-locks": (places.hive("2_3_9", LOCKS), their_hive),
}


class TestBesidePyIceberg:
    """PyIceberg, in its own catalog on the same service, appends while we do."""

    @pytest.mark.services
    @pytest.mark.sample(3)
    @pytest.mark.parametrize(
        "place",
        [pytest.param(each, marks=[] if each == "sqlite" else pytest.mark.services) for each in BESIDE_PYICEBERG],
    )
    def test_each_row_is_there_once(self, request, tmp_path, place):
        from pyiceberg.catalog import load_catalog as load_theirs
        from pyiceberg.exceptions import CommitFailedException

        make, properties_of = BESIDE_PYICEBERG[place]
        properties = make(request, tmp_path)
        catalog = load_catalog("prod", **properties)
        table = new_table(catalog, **mode_of(properties))
        theirs = load_theirs("prod", **properties_of(properties)).load_table(table)

        def insert(number: int) -> None:
            while True:
                try:
                    theirs.append(row(THEIRS, number))
                    return
                except CommitFailedException:
                    theirs.refresh()  # it surely did not land, and others were first too often

        expected = race_beside(catalog, table, insert)
        seen: pa.Table = theirs.refresh().scan().to_arrow()
        assert Counter((each["writer"], each["number"]) for each in seen.to_pylist()) == Counter(expected)
