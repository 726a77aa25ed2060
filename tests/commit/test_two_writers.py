"""Several processes append to one table: every commit lands once, whoever wins the races."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.snapshot_writer import read_manifests
from airflow_iceberg.table import Table

ROOT = Path(__file__).parents[2]
WRITERS, APPENDS = 8, 50


def run_writers(name: str, properties: dict[str, str], table: str) -> list[int]:
    """Start the writers together and return the snapshot ids that they were told."""
    programs = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.appender",
                json.dumps(
                    {
                        "catalog": {"name": name, "properties": properties},
                        "table": table,
                        "writer": writer,
                        "appends": APPENDS,
                    }
                ),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(WRITERS)
    ]
    outputs = [program.communicate(timeout=300) for program in programs]
    for program, (_, errors) in zip(programs, outputs, strict=True):
        assert program.returncode == 0, errors
    return [int(line) for out, _ in outputs for line in out.split()]


def check_nothing_lost_or_doubled(name: str, properties: dict[str, str]) -> None:
    """Race 8 processes with 50 appends each and count."""
    catalog = load_catalog(name, **properties)
    catalog.create_namespace("db", if_not_exists=True)
    Table.create(catalog, "db.race", schema={"writer": "int not null", "number": "int not null"})
    acknowledged = run_writers(name, properties, "db.race")

    table = Table.load(catalog, "db.race")
    metadata = table.metadata
    assert len(metadata.snapshots) == WRITERS * APPENDS
    assert sorted(acknowledged) == sorted(snapshot.snapshot_id for snapshot in metadata.snapshots)
    assert [snapshot.sequence_number for snapshot in metadata.snapshots] == list(range(1, WRITERS * APPENDS + 1))
    head = metadata.current_snapshot()
    assert head is not None
    assert head.summary["total-records"] == head.summary["total-data-files"] == str(WRITERS * APPENDS)
    rows = table.scan().to_arrow().to_pylist()
    counted = Counter((row["writer"], row["number"]) for row in rows)
    assert counted == Counter((writer, number) for writer in range(WRITERS) for number in range(APPENDS))
    check_no_leftovers(table)


def check_no_leftovers(table: Table) -> None:
    """Attempts that lost leave no metadata files behind: everything in the folder is named by the table."""
    named = {location for _, location in table.metadata.metadata_log} | {table.metadata_location}
    for snapshot in table.metadata.snapshots:
        named.add(snapshot.manifest_list)
        named |= {manifest.manifest_path for manifest in read_manifests(table.io, snapshot)}
    lying = {status.location for status in table.io.list(f"{table.location}/metadata")}
    unnamed = {
        location for location in lying if location.endswith((".avro", ".metadata.json")) and location not in named
    }
    # The log of metadata files is cut to 100 entries (write.metadata.previous-versions-max), the older files stay.
    assert {location for location in unnamed if location.endswith(".avro")} == set()
    assert len([location for location in lying if location.endswith(".metadata.json")]) == WRITERS * APPENDS + 1


@pytest.fixture
def postgresql_uri():
    from tests.support.postgresql import PostgreSQL

    server = PostgreSQL()
    yield server.uri()
    server.remove()


class TestEightWriters:
    """8 processes with 50 appends each make 400 snapshots; no row is lost, none is doubled, no file is left over."""

    def test_on_a_hadoop_catalog(self, tmp_path):
        check_nothing_lost_or_doubled("local", {"type": "hadoop", "warehouse": (tmp_path / "wh").as_uri()})

    def test_on_a_sql_catalog_in_sqlite(self, tmp_path):
        check_nothing_lost_or_doubled(
            "prod",
            {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": (tmp_path / "wh").as_uri()},
        )

    @pytest.mark.services
    def test_on_a_sql_catalog_in_postgresql(self, tmp_path, postgresql_uri):
        check_nothing_lost_or_doubled(
            "prod", {"type": "sql", "uri": postgresql_uri, "warehouse": (tmp_path / "wh").as_uri()}
        )
