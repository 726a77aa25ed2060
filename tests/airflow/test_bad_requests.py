"""What cannot be asked of a table: one clear error for each operator, nothing committed, nothing deleted.

The operators run by `execute` alone, on rendered templates; what else `dag.test()` does is tested elsewhere.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_iceberg import operators
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.table import Table
from tests.airflow.conftest import Lake
from tests.airflow.conftest import operators as kinds_of_operators


@pytest.fixture
def table(lake: Lake) -> Table:
    """Two files of ten rows each, in two snapshots; the first one is tagged."""
    columns = {"id": "long", "day": "date", "name": "string"}
    made = lake.create(schema=columns)
    for start in (0, 10):
        made.append(pa.table({"id": list(range(start, start + 10))}))
        if not start:
            made.create_tag("kept")
    lake.write_file("rows.parquet", [3])
    return made


def local_path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def everything(lake: Lake) -> dict[str, bytes]:
    """Every file below the lake, with its bytes, and which metadata the catalog points to."""
    files = {str(path): path.read_bytes() for path in (lake.folder / "warehouse").rglob("*") if path.is_file()}
    tables = [table for namespace in lake.catalog.list_namespaces() for table in lake.catalog.list_tables(namespace)]
    return {**files, **{str(table): lake.load(str(table)).metadata_location.encode() for table in tables}}


@pytest.fixture
def execute(lake: Lake) -> Callable[[Any], Any]:
    """Renders the templates of an operator and executes it."""

    def run(operator: Any) -> Any:
        instance = SimpleNamespace(
            dag_id="dag", run_id=uuid4().hex, task_id=operator.task_id, map_index=-1, try_number=1, max_tries=0
        )
        dag_run = SimpleNamespace(run_after=datetime.now(UTC), start_date=datetime.now(UTC))
        context = {"ti": instance, "task": SimpleNamespace(retries=0), "dag_run": dag_run, "outlet_events": {}}
        rendered = operator.prepare_for_execution()
        rendered.render_template_fields({**context, "source": lake.folder / "source"})
        return rendered.execute(context)

    return run


@pytest.fixture
def refused(lake: Lake, table: Table, execute: Callable[[Any], Any]) -> Callable[..., str]:
    """Executes an operator that has to fail, by default for good, and gives what it says."""

    def run(operator: Any, error: type[AirflowException] = AirflowFailException) -> str:
        before = everything(lake)
        with pytest.raises(error) as caught:
            execute(operator)
        assert everything(lake) == before
        text = str(caught.value)
        assert "\n" not in text
        assert not text.endswith(".")
        assert "Traceback" not in text
        return text

    return run


task = partial(kinds_of_operators, task_id="task")
local = partial(task, spark_conn_id=None)
append = local(operators.IcebergAppendOperator, files="{{ source }}/rows.parquet")
overwrite = local(operators.IcebergOverwriteOperator, files="{{ source }}/rows.parquet")
delete = local(operators.IcebergDeleteOperator, predicate="id = 3")
compact = local(operators.IcebergCompactOperator)
expire = local(operators.IcebergExpireSnapshotsOperator)
clean = local(operators.IcebergRemoveOrphanFilesOperator, older_than=timedelta(0), options={"allow_recent": True})
manifests = task(operators.IcebergRewriteManifestsOperator)
alter = task(operators.IcebergAlterTableOperator)
create = task(operators.IcebergCreateTableOperator, table="s.new", schema={"id": "long", "ts": "timestamptz"})


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

    @pytest.mark.costly
    def test_of_a_delete_an_overwrite_and_a_compaction(self, refused, predicate, message):
        for operator in (delete(predicate=predicate), overwrite(overwrite_filter=predicate), compact(where=predicate)):
            assert message in refused(operator)


@pytest.mark.sample(3)
class TestNumbersAndWords:
    """Sizes, limits, moments, words and combinations that cannot be; no retry meets anything else."""

    @pytest.mark.costly
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
            (delete(mode="merge"), "mode is 'merge', expected 'copy-on-write' or 'merge-on-read'"),
            (delete(isolation_level="none"), "isolation_level is 'none', expected one of"),
            (delete(max_rows=-1), "max_rows is -1, expected a number of rows, 0 or more"),
            (delete(branch="kept"), "'kept' is a tag of table s.t; rows are written to branches only"),
            (delete(table="s.tt"), "s.tt"),
            (delete(snapshot_properties={"wap.id": "x"}), "snapshot property 'wap.id' marks snapshots"),
            (expire(older_than="yesterday"), "older_than='yesterday': expected a timedelta or a time such as"),
            (expire(retain_last=0), "unexpected retain_last 0 (expected at least 1)"),
            (expire(retain_last="many"), "retain_last is 'many', expected a whole number"),
            (expire(snapshot_ids=[7]), "7"),
            (clean(older_than=timedelta(hours=1), options={}), "24 hours"),
            (compact(options="{'rewrite-all': True}"), "expected names and values"),
            (compact(snapshot_properties="x"), "snapshot_properties are 'x', expected names and texts"),
            (delete(snapshot_properties=["x"]), "snapshot_properties are ['x'], expected names and texts"),
            (delete(snapshot_properties={1: "x"}), "snapshot property 1: expected a name as text, got int"),
            (delete(snapshot_properties={"deleted-rows": "9"}), "'deleted-rows' is written by the commit"),
            (manifests(spec_id="x"), "spec_id is 'x', expected a whole number"),
            (manifests(spec_id=0.5), "spec_id is 0.5, expected a whole number"),
            (expire(snapshot_ids=7), "cannot expire snapshot 7"),
            (expire(clean_expired_metadata="no"), "clean_expired_metadata is 'no', expected true or false"),
            (clean(options="x"), "options are 'x', expected names and values"),
            (clean(options={"equal_schemes": "s3a:s3"}), "equal_schemes is 's3a:s3', expected other names"),
            (clean(options={"equal_authorities": {"a": 1}}), "equal_authorities is {'a': 1}, expected other names"),
            (clean(action="remove"), "unknown action 'remove'; one of quarantine, delete, dry_run"),
            (compact(strategy="sort"), "has no sort order"),
            (compact(table="s.missing"), "s.missing"),
            (delete(predicate="id > 3", max_rows=5), "max_rows is 5; nothing was deleted"),
            (delete(max_rows="{{ '' }}"), "max_rows is '' at run time"),
            (delete(predicate="{{ '' }}"), "predicate is '' at run time"),
            (overwrite(overwrite_filter="{{ '' }}"), "overwrite_filter is '' at run time"),
            (overwrite(overwrite_filter="id >= 15"), "does not match the overwrite's filter 'id >= 15': id is 3"),
            (expire(spark_from_files="many"), "spark_from_files is 'many', expected a whole number"),
            (expire(dry_run="perhaps"), "dry_run is 'perhaps', expected true or false"),
            (expire(snapshot_ids="[17]"), "cannot expire snapshot 17"),
            (clean(options={"nope": 1}), "unknown option 'nope'; one of allow_recent"),
            (manifests(spec_id=3), "spec_id is 3, expected one of 0"),
            (append(table="s.nothing"), "s.nothing"),
            (append(table="unqualified"), "unqualified"),
            (append(branch="nothing"), "nothing"),
            (append(files="/no/such/file.parquet"), "/no/such/file.parquet"),
            (append(files="nosuch://host/file.parquet"), "nosuch"),
            (append(file_options={"delimiter": ";"}), "unknown file_options key 'delimiter'; one of file_format, "),
            (append(on_rerun="maybe"), "maybe"),
            (append(on_empty="maybe"), "maybe"),
            (append(snapshot_properties={"airflow.operation-key": "mine"}), "airflow.operation-key"),
            # Before the job, which would fail for the missing file.
            (append(snapshot_properties={"airflow.x": "1"}, files="/no/such.parquet"), "airflow.x"),
            (append(files=None), "task task: exactly one of files, sql and python_callable is needed, got none"),
            (append(sql="select 1"), "one of files, sql and python_callable is needed, got files and sql"),
            (append(files=None, sql="select 1", python_callable="a:b"), "got sql and python_callable"),
            (
                append(files=None, sql="select 1; select 2"),
                "sql is select, select, expected one query that returns rows",
            ),
            (append(files=None, python_callable="package.module:function"), "a python_callable needs Spark, got"),
            (append(files=None, python_callable=len), "give its name as 'package.module:function', got <built-in"),
            (append(iceberg_conn_id="nobody"), "nobody"),
            (alter(changes="["), "changes is not a JSON list"),
            (alter(changes='{"drop_column": "id"}'), "expected a list of changes"),
            (alter(changes=[{"drop_colum": "id"}]), "unknown change 'drop_colum'"),
            (alter(changes=[{"drop_column": "nothing"}]), "no column 'nothing'"),
            (alter(changes=[{"change_type": {"name": "id", "type": "int"}}]), "cannot change from long to int"),
            (alter(table="s.nothing", changes=[]), "s.nothing"),
            (create(table="s.t", if_not_exists=False), "s.t"),
            (create(schema={"id": "lnog"}), "lnog"),
            (create(schema="{"), "schema is not a JSON object"),
            (create(partition_by="id"), "partition_by is not a list such as"),
            (create(sort_by="id"), "sort_by is not a list such as"),
            (create(properties="[1]"), "properties is not a JSON object but a list"),
            (create(partition_by=["day(nothing)"]), "nothing"),
            (create(partition_by=["century(ts)"]), "century"),
            (create(partition_by=["day(id)"]), "day"),
            (create(sort_by=["nothing"]), "nothing"),
            (create(table="t"), "'t'"),
            (create(table="other.t", create_namespace=False), "no namespace other"),
            (create(properties={"format-version": "4"}), "4"),
        ],
        ids=lambda value: value if isinstance(value, str) else type(value).__name__.removeprefix("Iceberg"),
    )
    def test_are_named(self, refused, operator, message):
        assert message in refused(operator)

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["spark.wap.id", "spark.wap.branch"])
    @pytest.mark.parametrize("make", [append, delete])
    def test_settings_of_icebergs_own_spark_writer(self, refused, make, name):
        text = refused(make(spark_config=SparkConfig(conf={name: "audit"})))
        assert f"{name} is a setting of Iceberg's Spark writer, which is not used here; set branch='audit'" in text

    @pytest.mark.costly
    def test_a_value_that_does_not_fit_its_column(self, lake, refused):
        lake.create("s.small", schema={"id": "int"})
        lake.write_file("large.parquet", [1, 2**40])
        text = refused(append(table="s.small", files="{{ source }}/large.parquet"))
        assert "id" in text
        assert str(2**40) in text


class TestRetention:
    """What a branch or a tag holds is not removed, however it is asked for."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("number", "as_text", "ref"), [(0, False, "kept"), (1, True, "main")])
    def test_of_a_snapshot_that_has_a_ref(self, refused, table, number, as_text, ref):
        snapshot_id = table.snapshots()[number].snapshot_id
        text = refused(expire(snapshot_ids=[str(snapshot_id) if as_text else snapshot_id]))
        assert str(snapshot_id) in text
        assert ref in text

    def test_of_all_that_is_old_leaves_the_tag(self, execute, table):
        result = execute(expire(older_than=datetime(2200, 1, 1, tzinfo=UTC)))
        assert result["expired_snapshots"] == 0
        assert table.refresh().scan(ref="kept").count() == 10

    @pytest.mark.costly
    def test_where_the_table_says_that_its_files_are_shared(self, refused, table):
        table.alter([{"set_properties": {"gc.enabled": "false"}}])
        for operator in (expire(), clean()):
            assert "has gc.enabled=false" in refused(operator)


def the_list(table: Table) -> str:
    return str(table.current_snapshot().manifest_list)


def a_manifest(table: Table) -> str:
    return str(table.inspect.manifests()["path"][0].as_py())


class TestFilesThatAreMissing:
    """A table that lost a file is not made worse: an operator that has to read it says which one it is."""

    @pytest.mark.costly
    @pytest.mark.parametrize("lost", [the_list, a_manifest], ids=["manifest list", "manifest"])
    @pytest.mark.parametrize(
        "operator",
        [
            delete(),
            delete(predicate="id < 1000"),
            compact(options={"rewrite-all": True}),
            manifests(),
            clean(action="delete"),
            clean(),
        ],
        ids=["delete", "delete of all", "compact", "rewrite manifests", "orphans", "quarantine"],
    )
    def test_of_the_metadata(self, refused, table, operator, lost):
        self.check(refused, operator, lost(table))

    @pytest.mark.costly
    def test_a_manifest_list_beside_snapshots_that_expire(self, refused, table):
        for id_ in (50, 51):
            table.append(pa.table({"id": [id_]}))
        self.check(refused, expire(older_than=datetime(2200, 1, 1, tzinfo=UTC)), the_list(table))

    def check(self, refused, operator, location):
        local_path(location).unlink()
        text = refused(operator, AirflowException)
        assert location in text
        assert "there is no such file" in text

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "operator",
        [
            delete(mode="copy-on-write"),
            delete(mode="merge-on-read"),
            overwrite(overwrite_filter="id = 3"),
            compact(options={"rewrite-all": True}),
        ],
        ids=["copy-on-write", "merge-on-read", "overwrite", "compact"],
    )
    def test_a_data_file_whose_rows_are_read(self, refused, table, operator):
        location = next(task.file.file_path for task in table.scan("id = 3").plan_files())
        local_path(location).unlink()
        assert location.rpartition("/")[2] in refused(operator, AirflowException)


class TestALocationOfTwoTables:
    """The files of the one would look like orphans of the other, so there is never a second one."""

    @pytest.mark.costly
    @pytest.mark.parametrize("below", ["", "/inner"])
    def test_the_second_one_is_not_created(self, lake, table, below):
        with pytest.raises(InvalidInputError, match="another table has its metadata at"):
            lake.create("s.other", schema={"id": "long"}, location=f"{table.location}{below}")
        assert sorted(lake.ids()) == list(range(20))


class TestTheSameOperatorsOnWhatCanBeDone:
    """What is refused above is refused for its own reason: beside it the very same calls do their work."""

    @pytest.mark.services
    def test_they_do_it(self, lake, table, execute):
        assert execute(delete())["deleted_records"] == 1
        assert execute(overwrite(overwrite_filter="id = 5 or id = 3"))["added_records"] == 1
        assert lake.ids() == [id_ for id_ in range(20) if id_ != 5]
        everything = {"rewrite-all": True, "target-file-size-bytes": 1 << 20}
        assert execute(compact(options=everything))["carried_records"] == 19
        assert execute(manifests(spec_id="0"))["outcome"] == "committed"
        (local_path(table.location) / "data" / "left.parquet").write_text("orphan")
        cleaned = execute(clean(older_than=timedelta(seconds=-60)))
        assert cleaned["orphan_files"] == 1
        shouted = {"prefix_mismatch_mode": "ERROR", "allow_recent": "True"}
        assert execute(clean(action="dry_run", options=shouted))["outcome"] == "dry_run"
        zordered = execute(compact(strategy="ZORDER", sort_by=["`id`", "day"], options=everything))
        assert zordered["carried_records"] == 19
        assert execute(clean(purge_older_than=timedelta(days=30)))["purged_quarantines"] == []
        assert execute(clean(purge_older_than="2200-01-01"))["purged_quarantines"] == [cleaned["quarantine"]]
        assert execute(expire(older_than=datetime(2200, 1, 1, tzinfo=UTC)))["expired_snapshots"] > 2
        assert lake.ids() == [id_ for id_ in range(20) if id_ != 5]
