"""Changes of branches and tags beside Iceberg Java's procedures, in each catalog that both know, on one service.

Java makes a table with a history; a twin, registered under another name, is Java's to change. After each change both
are the same, and so is what Hive and Glue say of them. Then Java goes on with ours. All cases, on the Hadoop catalog:
`compat.test_same_refs_as_java`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.catalogs.hive.client import HiveClient
from airflow_iceberg.table import Table
from tests.catalogs import places
from tests.catalogs.java import add_catalog
from tests.catalogs.places import Properties
from tests.catalogs.test_races_beside import BESIDE_JAVA
from tests.services.glue import KEYS
from tests.support.ref_cases import OF_THE_WRITER, shape

HISTORY = (
    "create table {t} (id bigint, part string) using iceberg partitioned by (part)",
    "alter table {t} set tblproperties ('write.wap.enabled'='true')",
    "insert into {t} values (1, 'a')",
    "insert into {t} values (2, 'b')",
    "alter table {t} create branch audit",
    # Not `{t}.branch_audit`: Java asks the server of REST for a namespace by that name, whose path Jetty refuses.
    "set spark.wap.branch=audit",
    "insert into {t} values (3, 'a')",
    "reset spark.wap.branch",
    "set spark.wap.id=w1",
    "insert into {t} values (4, 'c')",
    "set spark.wap.id=w2",
    "insert into {t} values (5, 'd')",
    "reset spark.wap.id",
)
# A metastore's words that differ for two tables with the same history.
OF_THE_TABLE = ("metadata_location", "previous_metadata_location", "transient_lastDdlTime")


def of_glue(properties: Properties) -> Mapping[str, str]:
    return {
        "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "warehouse": properties["warehouse"],
        "glue.endpoint": properties["glue.endpoint"],
        "client.region": KEYS["glue.region"],
        "client.credentials-provider": "software.amazon.awssdk.auth.credentials.SystemPropertyCredentialsProvider",
    }


PLACES = {
    **{name: BESIDE_JAVA[name] for name in ("postgresql-v1", "rest", "nessie", "hive-2.3.10-locks")},
    "glue": (places.glue, of_glue),
}


def changes(table: Table) -> Iterator[tuple[str, Any]]:
    """Yield what is done to the table: a statement of Java, and what we do."""
    first, second, _, staged, _ = (snapshot.snapshot_id for snapshot in table.snapshots())
    moment = table.metadata.snapshot(second).timestamp_ms + 1
    text = datetime.fromtimestamp(moment / 1000, UTC).isoformat(" ", "milliseconds")
    call = "call {c}.system."
    yield call + f"rollback_to_snapshot('{{t}}', {first})", lambda ours: ours.rollback_to_snapshot(first)
    yield call + f"set_current_snapshot('{{t}}', {second})", lambda ours: ours.set_current_snapshot(second)
    yield call + "fast_forward('{t}', 'main', 'audit')", lambda ours: ours.fast_forward("main", "audit")
    yield call + f"cherrypick_snapshot('{{t}}', {staged})", lambda ours: ours.cherry_pick(staged)
    yield call + "publish_changes('{t}', 'w2')", lambda ours: ours.publish_changes("w2")
    yield (
        "alter table {c}.{t} create tag eod retain 2 days",
        lambda ours: ours.create_tag("eod", max_ref_age_ms=2 * 86_400_000),
    )
    yield "alter table {c}.{t} drop branch audit", lambda ours: ours.remove_branch("audit")
    yield (
        call + f"rollback_to_timestamp('{{t}}', timestamp '{text}')",
        lambda ours: ours.rollback_to_timestamp(moment),
    )
    yield (
        call + "set_current_snapshot(table => '{t}', ref => 'eod')",
        lambda ours: ours.set_current_snapshot(ref="eod"),
    )


def said(properties: Properties, name: str) -> dict[str, str]:
    """Return what the metastore says of a table; nothing for a catalog that keeps its pointer only."""
    if properties["type"] == "hive":
        client = HiveClient("test", {"uri": properties["uri"]})
        found = dict(client.table("db", name).parameters)
        client.close()
        return found
    if properties["type"] == "glue":
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": KEYS["glue.region"]}
        glue = boto3.client("glue", endpoint_url=properties["glue.endpoint"], **keys)
        return dict(glue.get_table(DatabaseName="db", Name=name)["Table"]["Parameters"])
    return {}


def alike(parameters: Mapping[str, str], table: Table, known: set[int]) -> dict[str, Any]:
    """Return a metastore's words without those that differ for twins; new snapshots have ids and times of their own."""
    found: dict[str, Any] = {key: value for key, value in parameters.items() if key not in OF_THE_TABLE}
    if "current-snapshot-summary" in found:
        summary = json.loads(found["current-snapshot-summary"])
        found["current-snapshot-summary"] = {k: v for k, v in summary.items() if not k.startswith(OF_THE_WRITER)}
    if table.metadata.current_snapshot_id not in known:
        found.pop("current-snapshot-id", None)
        found.pop("current-snapshot-timestamp-ms", None)
    return found


def check_said(parameters: Mapping[str, str], table: Table, before: str) -> None:
    """Check that what a metastore says is what the metadata says."""
    if not parameters:
        return
    assert parameters["metadata_location"] == table.metadata_location
    assert parameters["previous_metadata_location"] == before
    if "current-snapshot-id" in parameters:
        head = table.metadata.current_snapshot()
        assert head is not None
        assert parameters["current-snapshot-id"] == str(head.snapshot_id)
        assert parameters["current-snapshot-timestamp-ms"] == str(head.timestamp_ms)
        assert json.loads(parameters["current-snapshot-summary"]).items() <= head.summary.items()
        assert parameters["numRows"] == head.summary["total-records"]


def make_twins(java: Any, catalog: Catalog) -> tuple[str, str]:
    """Return the names of two tables with the same history, the second of which is for Java."""
    catalog.create_namespace("db", if_not_exists=True)
    ours, theirs = (f"db.{who}_{uuid.uuid4().hex[:8]}" for who in ("ours", "theirs"))
    try:
        for statement in HISTORY:
            java.sql(statement.format(t=f"{catalog.name}.{ours}"))
    finally:
        for name in ("branch", "id"):
            java.sql(f"reset spark.wap.{name}")
    catalog.register_table(theirs, catalog.load(ours).metadata_location)
    return ours, theirs


@pytest.mark.services
@pytest.mark.java
class TestBesideIcebergJava:
    """Each change of a ref is Java's of the same name, wherever the pointer is kept, and Java goes on from it."""

    @pytest.mark.parametrize("place", PLACES)
    def test_every_change_is_the_same(self, request, tmp_path, iceberg_java, place):
        make, settings_of = PLACES[place]
        properties = make(request, tmp_path)
        java = iceberg_java
        java.call("tests.support.java_cases:use_aws_keys", key_id="testing", secret="testing")
        catalog = load_catalog(add_catalog(java, **settings_of(properties)), **properties)
        ours, theirs = make_twins(java, catalog)
        known = {snapshot.snapshot_id for snapshot in catalog.load(ours).metadata.snapshots}
        for statement, change in changes(Table.load(catalog, ours)):
            before = catalog.load(ours).metadata_location
            java.sql(statement.format(c=catalog.name, t=theirs))
            change(Table.load(catalog, ours))
            mine, twin = Table.load(catalog, ours), Table.load(catalog, theirs)
            assert shape(mine, known) == shape(twin, known), statement
            words = said(properties, ours.removeprefix("db."))
            check_said(words, mine, before)
            assert alike(words, mine, known) == alike(said(properties, theirs.removeprefix("db.")), twin, known)
        rows = sorted(one["id"] for one in mine.scan().to_arrow().to_pylist())
        assert rows == [1, 2, 3, 4, 5] == sorted(one["id"] for one in java.sql(f"select id from {catalog.name}.{ours}"))
        java.sql(f"insert into {catalog.name}.{ours} values (6, 'e')")
        assert Table.load(catalog, ours).scan().to_arrow().num_rows == 6
        java.sql(f"call {catalog.name}.system.rollback_to_snapshot('{ours}', {mine.metadata.current_snapshot_id})")
        assert Table.load(catalog, ours).metadata.current_snapshot_id == mine.metadata.current_snapshot_id
