"""OpenLineage: what tasks have read and written, with the names that Spark's lineage has for it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.utils.utils import translate_airflow_asset
from airflow.utils.state import TaskInstanceState
from openlineage.client.serde import Serde

from airflow_iceberg.assets import iceberg_asset
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.hooks import IcebergHook
from airflow_iceberg.lineage import _commit_report, _facets, _identifier, _link, _partitions, _without_login
from airflow_iceberg.operators import IcebergAppendOperator, IcebergExpireSnapshotsOperator
from tests.airflow.killed_operator import context_of


def executed(task: Any) -> Any:
    task.execute(context_of(task, {"try": 1, "epoch": 0}))
    return task


def lineage_of(task: Any) -> dict[str, Any]:
    """Return what Airflow's provider of OpenLineage gets from a task, as it would be sent."""
    run, ti = SimpleNamespace(run_id="run"), SimpleNamespace()
    found = ExtractorManager().extract_metadata(run, task, TaskInstanceState.SUCCESS, ti)
    return {kind: [json.loads(Serde.to_json(one)) for one in getattr(found, kind)] for kind in ("inputs", "outputs")}


class TestAnAppend:
    """Its output has schema, version, statistics, partitions, link and the report of the commit."""

    @pytest.mark.costly
    def test_of_a_query_over_another_table(self, lake):
        source = lake.create("s.source")
        lake.append([1, 2], "s.source")
        table = lake.create(partition_by=["id"])
        task = IcebergAppendOperator(
            task_id="append", table="s.t", spark_conn_id=None, sql="select id from a", inputs={"a": "s.source"}
        )
        found = lineage_of(executed(task))
        ((read,), (written,)) = found["inputs"], found["outputs"]
        location, snapshot = table.location.removeprefix("file://"), lake.load().current_snapshot()
        assert (written["namespace"], written["name"]) == ("file", location)
        facets = written["facets"]
        assert [(one["name"], one["type"]) for one in facets["schema"]["fields"]] == [("id", "long")]
        assert facets["version"]["datasetVersion"] == str(snapshot.snapshot_id)
        assert (facets["storage"]["storageLayer"], facets["storage"]["fileFormat"]) == ("iceberg", "parquet")
        assert (facets["catalog"]["type"], facets["catalog"]["name"]) == ("sql", "lake")
        (link,) = facets["symlinks"]["identifiers"]
        assert (link["name"], link["type"]) == ("s.t", "TABLE")
        statistics = written["outputFacets"]["outputStatistics"]
        assert (statistics["rowCount"], statistics["fileCount"]) == (2, 2)
        assert statistics["size"] == sum(path.stat().st_size for path in lake.data_files())
        report = written["outputFacets"]["icebergCommitReport"]
        assert (report["snapshotId"], report["operation"]) == (snapshot.snapshot_id, "append")
        assert (report["commitMetrics"]["addedRecords"], report["commitMetrics"]["addedDataFiles"]) == (2, 2)
        partitions = written["outputFacets"]["subset"]["outputCondition"]["partitions"]
        assert [(one["identifier"], one["dimensions"]) for one in partitions] == [
            ("id=1", {"id": "1"}),
            ("id=2", {"id": "2"}),
        ]
        assert (read["namespace"], read["name"]) == ("file", source.location.removeprefix("file://"))
        version = lake.load("s.source").current_snapshot().snapshot_id
        assert read["facets"]["version"]["datasetVersion"] == str(version)
        assert read["inputFacets"]["inputStatistics"]["rowCount"] == 2

    @pytest.mark.costly
    def test_a_retry_that_finds_the_commit_tells_the_same(self, lake):
        lake.create("s.source")
        lake.append([1], "s.source")
        lake.create()
        options = {"table": "s.t", "spark_conn_id": None, "sql": "select id from a", "inputs": {"a": "s.source"}}
        first, second = (lineage_of(executed(IcebergAppendOperator(task_id="t", **options))) for _ in range(2))
        assert first == second

    def test_maintenance_has_the_table_alone(self, lake):
        lake.create()
        lake.append([1])
        task = IcebergExpireSnapshotsOperator(task_id="t", table="s.t", spark_conn_id=None)
        found = lineage_of(executed(task))
        assert (found["inputs"], len(found["outputs"])) == ([], 1)

    def test_a_task_that_failed_tells_nothing(self):
        task = IcebergAppendOperator(task_id="t", table="s.t", files="/x", asset_events=False)
        assert lineage_of(task) == {"inputs": [], "outputs": []}


class TestNames:
    """Those of the Spark integration: the location, and a link to the name in the catalog."""

    @pytest.mark.parametrize(
        ("location", "expected"),
        [
            ("s3://bucket/wh/db/orders", ("s3://bucket", "wh/db/orders")),
            ("s3a://bucket/wh/db/orders/", ("s3://bucket", "wh/db/orders")),
            ("gs://bucket/t", ("gs://bucket", "t")),
            ("hdfs://name:8020/wh/t/", ("hdfs://name:8020", "/wh/t")),
            ("abfss://c@a.dfs.core.windows.net/t", ("abfss://c@a.dfs.core.windows.net", "t")),
            ("abfs://c@a.dfs.core.windows.net/t", ("abfss://c@a.dfs.core.windows.net", "t")),
            ("wasb://c@a.blob.core.windows.net//t", ("wasbs://c@a.blob.core.windows.net", "t")),
            ("s3://bucket/a#b?c", ("s3://bucket", "a#b?c")),
            ("s3://me:secret@bucket/t", ("s3://bucket", "t")),
            ("file:/wh/t", ("file", "/wh/t")),
            ("file:///wh/t", ("file", "/wh/t")),
            ("/wh/t", ("file", "/wh/t")),
        ],
    )
    def test_of_a_location(self, location, expected):
        assert _identifier(location) == expected

    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            ({"type": "rest", "uri": "https://me:pw@c.example.com/api?t=1"}, ("https://c.example.com/api", "db.t")),
            ({"type": "nessie", "uri": "http://n:19120/api/v2"}, ("http://n:19120/api/v2", "db.t")),
            ({"type": "hive", "uri": "thrift://host:9083,thrift://me:pw@other:9083"}, ("hive://host:9083", "db.t")),
            ({"type": "glue", "glue.region": "eu-west-1", "glue.id": "1"}, ("arn:aws:glue:eu-west-1:1", "table/db/t")),
            # Without the account it would be the name of others' tables, too.
            ({"type": "glue", "glue.region": "eu-west-1"}, None),
            ({"type": "hadoop", "warehouse": "s3a://bucket/wh/"}, ("s3://bucket/wh", "db.t")),
            ({"type": "hadoop", "warehouse": "hdfs://name:8020/wh"}, ("hdfs://name:8020/wh", "db.t")),
            ({"type": "hadoop", "warehouse": "/wh"}, ("file:/wh", "db.t")),
            ({"type": "sql", "uri": "postgresql://u:secret@h/db"}, ("postgresql://h/db", "db.t")),
        ],
    )
    def test_of_the_link(self, properties, expected):
        table: Any = SimpleNamespace(catalog=SimpleNamespace(properties=properties), name="db.t")
        assert _link(table) == expected

    def test_of_the_link_of_a_name_with_a_dot(self):
        glue = {"type": "glue", "glue.region": "eu-west-1", "glue.id": "1"}
        for properties, name in ((glue, "table/db/x.t"), ({"type": "hadoop", "warehouse": "/wh"}, "db.`x.t`")):
            table: Any = SimpleNamespace(catalog=SimpleNamespace(properties=properties), name="db.`x.t`")
            assert (_link(table) or ())[1] == name

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("thrift://me:pw@host:9083,thrift://me:pw@other:9083", "thrift://host:9083,thrift://other:9083"),
            ("postgresql://me:pw@one:1,two:2/db?password=pw", "postgresql://one:1,two:2/db"),
            ("postgresql://me:p/w@host/db", None),
            ("sqlite:////wh/catalog.db", "sqlite:////wh/catalog.db"),
            ("", None),
        ],
    )
    def test_of_an_address_have_no_secret(self, address, expected):
        assert _without_login(address) == expected

    def test_of_what_a_commit_has_counted(self):
        # As https://openlineage.io/spec/facets/1-0-2/IcebergCommitReportOutputDatasetFacet.json has them.
        names = {
            "added-files-size": "1",
            "deleted-records": "2",
            "removed-position-delete-files": "3",
            "added-dvs": "4",
        }
        snapshot: Any = SimpleNamespace(snapshot_id=1, sequence_number=1, operation="overwrite", summary=names)
        report = _commit_report(snapshot)
        assert report.commitMetrics == {
            "addedFilesSizeInBytes": 1,
            "removedRecords": 2,
            "removedPositionalDeleteFiles": 3,
            "addedDVs": 4,
        }
        assert report._schemaURL.endswith("/IcebergCommitReportOutputDatasetFacet")


class TestSecrets:
    """Whoever may commit to a table writes its comments, partitions and summaries; lineage leaves no secret of them."""

    def test_of_names_and_summaries(self):
        assert _identifier("s3://b/x?token=hunter22") == ("s3://b", "x?token=***")
        assert "hunter22" not in repr(_identifier("s3://me:hunter22@b/x"))
        names = ("url=https%3A%2F%2Fme%3Ahunter22%40h", "day=2026-01-01")
        assert "hunter22" not in repr(_partitions(names))
        assert "2026-01-01" in repr(_partitions(names))
        summary = {"airflow.run-id": "manual password=hunter22", "airflow.dag-id": "d"}
        snapshot: Any = SimpleNamespace(snapshot_id=1, sequence_number=1, operation="append", summary=summary)
        assert _commit_report(snapshot).metadata == {"airflow.run-id": "manual password=***", "airflow.dag-id": "d"}

    def test_of_comments(self):
        fields = [{"id": 1, "name": "id", "type": "long", "required": False, "doc": "of postgresql://me:hunter22@db/x"}]
        schema = Schema.from_dict({"type": "struct", "schema-id": 0, "fields": fields})
        properties = {"write.format.default": "password=hunter22"}
        catalog = SimpleNamespace(name="lake", properties={"type": "sql", "uri": "sqlite:///x"})
        metadata = SimpleNamespace(schema=lambda: schema, properties=properties)
        table: Any = SimpleNamespace(metadata=metadata, catalog=catalog, name="s.t")
        found = _facets(table, None)
        assert found["schema"].fields[0].description == "of postgresql://me:***@db/x"
        assert "hunter22" not in repr(found)


def test_no_more_is_told_of_a_schema_than_anybody_reads():
    """An event is sent, and stored elsewhere; secrets are looked for in what is told."""
    column = {"type": "int", "required": False, "doc": "password=hunter22 " * 20_000}
    fields = [{**column, "id": number, "name": f"{number}"} for number in range(1, 21)]
    schema = Schema.from_dict({"type": "struct", "schema-id": 0, "fields": [*fields, *_many(6_000)]})
    catalog = SimpleNamespace(name="lake", properties={"type": "sql", "uri": "sqlite:///x"})
    table: Any = SimpleNamespace(
        metadata=SimpleNamespace(schema=lambda: schema, properties={}), catalog=catalog, name="s.t"
    )
    facets = _facets(table, None)
    found = facets["schema"].fields
    assert (len(found), len(found[0].description)) == (5_000, 4_096)
    assert "hunter" not in found[0].description
    told = json.loads(Serde.to_json(facets["icebergColumns"]))
    assert (told["columns"], told["toldColumns"]) == (6_020, 5_000)


def _many(count: int) -> list[dict[str, Any]]:
    return [{"id": 100 + n, "name": f"c{n}", "type": "int", "required": False} for n in range(count)]


class TestAnAsset:
    """An asset in the inlets or outlets of any task is the dataset of its table."""

    def test_is_the_location_of_its_table(self, lake):
        table = lake.create()
        for context in (None, IcebergHook(), table):
            found = translate_airflow_asset(iceberg_asset("s.t"), context)
            assert (found.namespace, found.name) == ("file", table.location.removeprefix("file://"))

    def test_of_a_table_that_is_not_there_is_none(self, lake):
        assert translate_airflow_asset(iceberg_asset("s.gone"), None) is None
