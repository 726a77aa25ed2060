"""What cannot be asked of a table: one clear error for each operator, nothing committed, nothing deleted.

The operators run by `execute` alone, with what Airflow would hand them: what `dag.test()` adds is tried elsewhere.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.commit.actions.snapshot_refs import create_ref
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.operators.compact import IcebergCompactOperator
from airflow_iceberg.operators.delete import IcebergDeleteOperator
from airflow_iceberg.operators.expire_snapshots import IcebergExpireSnapshotsOperator
from airflow_iceberg.operators.overwrite import IcebergOverwriteOperator
from airflow_iceberg.operators.remove_orphan_files import IcebergRemoveOrphanFilesOperator
from airflow_iceberg.operators.rewrite_manifests import IcebergRewriteManifestsOperator
from airflow_iceberg.table import Table
from tests.airflow.conftest import Lake

LONG_AGO = timedelta(days=3650)


@pytest.fixture
def table(lake: Lake) -> Table:
    """Two files of ten rows each, in two snapshots; the first one is tagged."""
    columns = {"id": "long", "day": "date", "name": "string"}
    made = lake.create(schema=columns)
    for start in (0, 10):
        made.append(pa.table({"id": list(range(start, start + 10))}))
        if not start:
            tag(made, "kept")
    lake.write_file("rows.parquet", [3])
    return made


def tag(table: Table, name: str) -> None:
    uuid = table.metadata.table_uuid
    table.change(create_ref(name, kind="tag", table_uuid=uuid, new_uuid=uuid))


def local_path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def everything(table: Table) -> dict[str, bytes]:
    """Every file below the table's location, with its bytes, and which metadata the catalog points to."""
    files = {str(path): path.read_bytes() for path in local_path(table.location).rglob("*") if path.is_file()}
    return {**files, "pointer": table.refresh().metadata_location.encode()}


def execute(operator: Any) -> Any:
    instance = SimpleNamespace(
        dag_id="dag", run_id=uuid4().hex, task_id=operator.task_id, map_index=-1, try_number=1, max_tries=0
    )
    run = SimpleNamespace(run_after=datetime.now(UTC), start_date=datetime.now(UTC))
    return operator.execute({"ti": instance, "task": SimpleNamespace(retries=0), "dag_run": run, "outlet_events": {}})


def refused(table: Table, operator: Any) -> str:
    """Run an operator that has to fail for good; return what it says."""
    before = everything(table)
    with pytest.raises(AirflowException) as error:
        execute(operator)
    assert everything(table) == before
    text = str(error.value)
    assert "\n" not in text
    assert not text.endswith(".")
    assert "Traceback" not in text
    return text


def delete(predicate: str, **options: Any) -> Any:
    return IcebergDeleteOperator(
        **{"task_id": "task", "table": "s.t", "spark_conn_id": None, "predicate": predicate, **options}
    )


def overwrite(lake: Lake, **options: Any) -> Any:
    files = str(lake.folder / "source" / "rows.parquet")
    return IcebergOverwriteOperator(task_id="task", table="s.t", spark_conn_id=None, files=files, **options)


def compact(**options: Any) -> Any:
    return IcebergCompactOperator(task_id="task", table="s.t", spark_conn_id=None, **options)


def expire(**options: Any) -> Any:
    return IcebergExpireSnapshotsOperator(task_id="task", table="s.t", spark_conn_id=None, **options)


def clean(**options: Any) -> Any:
    options = {"older_than": timedelta(0), "options": {"allow_recent": True}, **options}
    return IcebergRemoveOrphanFilesOperator(task_id="task", table="s.t", spark_conn_id=None, **options)


def manifests(**options: Any) -> Any:
    return IcebergRewriteManifestsOperator(task_id="task", table="s.t", **options)


PREDICATES = [
    ("id >", "cannot parse the filter 'id >': something is missing near line 1, column 4"),
    ("id = 3 and", "cannot parse the filter 'id = 3 and': something is missing"),
    ("(id = 3", r"cannot parse the filter '(id = 3': expecting )"),
    ("nope = 3", "no column 'nope' (columns: id, day, name)"),
    ("id = 'three'", "cannot compare column 'id' (long) with 'three'; write a number"),
    ("name = 3", "cannot compare column 'name' (string) with 3; write a string in quotes"),
    ("day = '31.1.2026'", "cannot compare column 'day' (date) with '31.1.2026'; write a date as '2026-01-31'"),
    ("day > '2026-02-30'", "invalid date '2026-02-30' compared with column 'day'"),
    ("id", "cannot compare column 'id' (long) with True, and by itself it is no predicate"),
    ("id = name", "two columns cannot be compared in a filter yet: 'id = name'"),
    (
        "id = 1 and upper(name) = 'A'",
        "in a filter: 'UPPER(name)' in 'id = 1 and upper(name) = 'A''; compare the column name itself with literals",
    ),
    ("delete from s.t", "'DELETE FROM s.t' is not supported in a filter"),
]


@pytest.mark.parametrize(("predicate", "message"), PREDICATES, ids=[text for text, _ in PREDICATES])
class TestPredicates:
    """One that does not parse, names no column, or compares what cannot be compared."""

    def test_of_a_delete(self, table, predicate, message):
        assert message in refused(table, delete(predicate))

    def test_of_an_overwrite(self, lake, table, predicate, message):
        assert message in refused(table, overwrite(lake, overwrite_filter=predicate))

    def test_of_a_compaction(self, table, predicate, message):
        assert message in refused(table, compact(where=predicate))


class TestNumbersAndWords:
    """Sizes, limits, moments and words that cannot be."""

    @pytest.mark.parametrize(
        ("operator", "message"),
        [
            (compact(options={"target-file-size-bytes": 0}), "target-file-size-bytes is 0, expected 1 or more"),
            (compact(options={"target-file-size-bytes": -1}), "target-file-size-bytes is -1, expected 1 or more"),
            (
                compact(options={"target-file-size-bytes": "512MB"}),
                "option target-file-size-bytes is '512MB', expected a whole number",
            ),
            (
                compact(options={"min-file-size-bytes": 2 << 30}),
                "min-file-size-bytes is 2147483648, target-file-size-bytes 536870912",
            ),
            (compact(options={"target-size": 1}), "unknown option 'target-size'; one of "),
            (compact(strategy="zorder", sort_by=["nope"]), "no column 'nope'"),
            (compact(branch="nope"), "nope"),
            (delete("id = 3", mode="merge"), "mode is 'merge', expected 'copy-on-write' or 'merge-on-read'"),
            (delete("id = 3", isolation_level="none"), "isolation_level is 'none', expected one of"),
            (delete("id = 3", max_rows=-1), "max_rows is -1, expected a number of rows, 0 or more"),
            (delete("id = 3", branch="kept"), "'kept' is a tag of table s.t; rows are written to branches only"),
            (delete("id = 3", table="s.tt"), "s.tt"),
            (delete("id = 3", snapshot_properties={"wap.id": "x"}), "snapshot property 'wap.id' marks snapshots"),
            (expire(older_than="yesterday"), "older_than is 'yesterday', expected a moment such as"),
            (expire(retain_last=0), "unexpected retain_last 0 (expected at least 1)"),
            (expire(retain_last="many"), "retain_last is 'many', expected a whole number"),
            (expire(snapshot_ids=[7]), "7"),
            (clean(older_than=timedelta(hours=1), options={}), "24 hours"),
            (compact(options="{'rewrite-all': True}"), "expected names and values, as in {'rewrite-all': True}"),
            (compact(snapshot_properties="x"), "snapshot_properties are 'x', expected names and texts"),
            (delete("id = 3", snapshot_properties=["x"]), "snapshot_properties are ['x'], expected names and texts"),
            (delete("id = 3", snapshot_properties={1: "x"}), "snapshot property 1: expected a name as text, got int"),
            (delete("id = 3", snapshot_properties={"deleted-rows": "9"}), "'deleted-rows' is written by the commit"),
            (manifests(spec_id="x"), "spec_id is 'x', expected a whole number"),
            (manifests(spec_id=0.5), "spec_id is 0.5, expected a whole number"),
            (expire(snapshot_ids=7), "cannot expire snapshot 7"),
            (expire(clean_expired_metadata="no"), "clean_expired_metadata is 'no', expected true or false"),
            (clean(options="x"), "options are 'x', expected names and values"),
            (clean(options={"equal_schemes": "s3a:s3"}), "equal_schemes is 's3a:s3', expected other spellings"),
            (clean(options={"equal_authorities": {"a": 1}}), "equal_authorities is {'a': 1}, expected other spellings"),
            (clean(action="remove"), "unknown action 'remove'; one of quarantine, delete, dry_run"),
        ],
        ids=lambda value: value if isinstance(value, str) else type(value).__name__.removeprefix("Iceberg"),
    )
    def test_are_named(self, table, operator, message):
        assert message in refused(table, operator)

    @pytest.mark.parametrize("name", ["spark.wap.id", "spark.wap.branch"])
    def test_settings_of_icebergs_own_spark_writer(self, lake, table, name):
        config = SparkConfig(conf={name: "audit"})
        files = str(lake.folder / "source" / "rows.parquet")
        appending = IcebergAppendOperator(
            task_id="task", table="s.t", spark_conn_id=None, files=files, spark_config=config
        )
        for operator in (appending, delete("id = 3", spark_config=config)):
            text = refused(table, operator)
            assert f"{name} is a setting of Iceberg's Spark writer, which is not used here; set branch='audit'" in text


class TestRetention:
    """What a branch or a tag holds is not removed, however it is asked for."""

    def test_of_a_snapshot_that_is_tagged(self, table):
        (tagged, _) = table.snapshots()
        text = refused(table, expire(snapshot_ids=[tagged.snapshot_id]))
        assert str(tagged.snapshot_id) in text
        assert "kept" in text

    def test_of_the_head_of_main(self, table):
        head = table.current_snapshot()
        text = refused(table, expire(snapshot_ids=[str(head.snapshot_id)]))
        assert str(head.snapshot_id) in text
        assert "main" in text

    def test_of_all_that_is_old_leaves_the_tag(self, table):
        result = execute(expire(older_than=datetime(2200, 1, 1, tzinfo=UTC)))
        assert result["expired_snapshots"] == 0
        assert table.refresh().scan(ref="kept").count() == 10

    def test_where_the_table_says_that_its_files_are_shared(self, table):
        table.alter([{"set_properties": {"gc.enabled": "false"}}])
        for operator in (expire(), clean()):
            assert "has gc.enabled=false" in refused(table, operator)


def the_list(table: Table) -> str:
    return str(table.current_snapshot().manifest_list)


def a_manifest(table: Table) -> str:
    return str(table.inspect.manifests()["path"][0].as_py())


def a_data_file(table: Table) -> str:
    return next(task.file.file_path for task in table.scan("id = 3").plan_files())


class TestFilesThatAreMissing:
    """A table that lost a file is not made worse: whoever would have to read it says which one it is."""

    @pytest.mark.parametrize("lost", [the_list, a_manifest], ids=["manifest list", "manifest"])
    @pytest.mark.parametrize(
        "operator",
        [
            delete("id = 3"),
            delete("id < 1000"),
            compact(options={"rewrite-all": True}),
            IcebergRewriteManifestsOperator(task_id="task", table="s.t"),
            clean(action="delete"),
            clean(),
        ],
        ids=["delete", "delete of all", "compact", "rewrite manifests", "orphans", "quarantine"],
    )
    def test_of_the_metadata(self, table, operator, lost):
        self.check(table, operator, lost(table))

    def test_a_manifest_list_beside_snapshots_that_expire(self, table):
        for id_ in (50, 51):
            table.append(pa.table({"id": [id_]}))
        self.check(table, expire(older_than=datetime(2200, 1, 1, tzinfo=UTC)), the_list(table))

    @staticmethod
    def check(table: Table, operator: Any, location: str) -> None:
        local_path(location).unlink()
        text = refused(table, operator)
        assert location in text
        assert "there is no such file" in text

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_a_data_file_whose_rows_are_to_be_deleted(self, table, mode):
        location = a_data_file(table)
        local_path(location).unlink()
        assert location.rpartition("/")[2] in refused(table, delete("id = 3", mode=mode))

    def test_a_data_file_whose_rows_are_to_be_replaced(self, lake, table):
        location = a_data_file(table)
        local_path(location).unlink()
        text = refused(table, overwrite(lake, overwrite_filter="id = 3"))
        assert location.rpartition("/")[2] in text

    def test_a_data_file_that_is_to_be_compacted(self, table):
        location = a_data_file(table)
        local_path(location).unlink()
        assert location.rpartition("/")[2] in refused(table, compact(options={"rewrite-all": True}))


class TestALocationOfTwoTables:
    """The files of the one look like orphans of the other."""

    @pytest.mark.parametrize("below", ["", "/inner"])
    def test_nothing_is_cleaned(self, lake, table, below):
        other = lake.create("s.other", schema={"id": "long"}, location=f"{table.location}{below}")
        other.append(pa.table({"id": [1]}))
        before = everything(other)
        for action in ("quarantine", "delete"):
            text = refused(table, clean(action=action))
            assert other.location in text
            assert "another table" in text
        assert everything(other) == before
        assert sorted(lake.ids()) == list(range(20))


class TestWhatAirflowDoesThen:
    """What is wrong with the request fails the task for good: a retry would meet it again."""

    @pytest.mark.parametrize(
        "operator", [delete("id >"), compact(options={"target-file-size-bytes": 0}), expire(older_than="x")]
    )
    def test_it_is_not_tried_again(self, table: Table, operator: Callable) -> None:
        with pytest.raises(AirflowFailException):
            execute(operator)


class TestTheSameOperatorsOnWhatCanBeDone:
    """What is refused above is refused for its own reason: beside it the very same calls do their work."""

    def test_they_do_it(self, lake, table):
        assert execute(delete("id = 3"))["deleted_records"] == 1
        assert execute(overwrite(lake, overwrite_filter="id = 5 or id = 3"))["added_records"] == 1
        assert lake.ids() == [id_ for id_ in range(20) if id_ != 5]
        assert (
            execute(compact(options={"rewrite-all": True, "target-file-size-bytes": 1 << 20}))["carried_records"] == 19
        )
        assert execute(manifests(spec_id="0"))["outcome"] == "committed"
        (local_path(table.location) / "data" / "left.parquet").write_text("orphan")
        cleaned = execute(clean(older_than=timedelta(seconds=-60)))
        assert cleaned["orphan_files"] == 1
        shouted = {"prefix_mismatch_mode": "ERROR", "allow_recent": "True"}
        assert execute(clean(action="dry_run", options=shouted))["outcome"] == "dry_run"
        assert (
            execute(compact(strategy="ZORDER", sort_by=["`id`", "day"], options={"rewrite-all": True}))[
                "carried_records"
            ]
            == 19
        )
        assert execute(clean(purge_older_than=timedelta(days=30)))["purged_quarantines"] == []
        assert execute(clean(purge_older_than="2200-01-01"))["purged_quarantines"] == [cleaned["quarantine"]]
        assert execute(expire(older_than=datetime(2200, 1, 1, tzinfo=UTC)))["expired_snapshots"] > 2
        assert lake.ids() == [id_ for id_ in range(20) if id_ != 5]
