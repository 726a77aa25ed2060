import json
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_iceberg import errors
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.binding import parse, parse_filter
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.jobs.protocol import plan as plans
from airflow_iceberg.jobs.protocol.merge_task import Clause, MatchKey, MergeTask
from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.protocol.plan import CompactTask, JobPlan, Task
from airflow_iceberg.jobs.protocol.result import FileChange, GroupOutput, InventoryUnitResult, JobError, JobResult
from airflow_iceberg.jobs.protocol.seal import Seal, SealedFile
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.table_input import TableInput
from airflow_iceberg.jobs.protocol.write_settings import WriteSettings
from tests.jobs.builders import make_plan
from tests.support.airflow_home import ROOT

FILES = Source.from_files(["/in/*.csv"], file_format="csv", format_options={"delimiter": ";"})
PATH = "file:///t/.staging/1/plan.json"


def changed(document: bytes, **changes: Any) -> bytes:
    """Return a JSON document with other values; ... takes a key out, two underscores go into an object."""
    fields = json.loads(document)
    for name, value in changes.items():
        *path, last = name.replace("__", "/").replace("_", "-").split("/")
        owner = fields
        for step in path:
            owner = owner[step]
        owner[last] = value
        if value is ...:
            del owner[last]
    return json.dumps(fields).encode()


def write_settings(**changes: Any) -> WriteSettings:
    schema = schema_from_shorthand({"id": "long not null", "ts": "timestamptz"})
    given = {"format_version": 3, "schema": schema, "data_location": "/t/data", "target_file_size_bytes": 1000}
    return WriteSettings(**{**given, **changes})


def sealed(location: str) -> SealedFile:
    return SealedFile(location=location, seal=Seal.of(b"content"))


def table_input() -> TableInput:
    schema = write_settings().schema
    return TableInput(work=sealed("/t/work"), schemas=(schema, schema), specs=(PartitionSpec(),), name_mapping="[]")


def merge_task(on: str = "target.id = source.id", **changes: Any) -> MergeTask:
    schema = write_settings().schema
    target = PinnedTable(
        name="target",
        table="db.t",
        catalog="c",
        table_uuid="u",
        table_location="/t",
        metadata_location="/t/metadata/1.json",
        snapshot_id=7,
        schema=schema,
        row_filter=parse_filter("id > 2", schema),
    )
    clauses = (
        Clause(rows="matched", action="delete", condition="source.op = 'd'"),
        Clause(rows="matched", action="update", columns=("ts",), expressions=("source.ts",)),
        Clause(rows="not matched", action="insert", is_star=True),
    )
    given = {
        "write": write_settings(),
        "spec": PartitionSpec(),
        "specs": (PartitionSpec(),),
        "schemas": (schema, schema),
        "target": target,
        "mode": "merge-on-read",
        "clauses": clauses,
        "source": FILES,
        "on": on,
        "keys": (MatchKey(field_id=1, source=("s", "id")),),
        "sql_params": {"day": ["int", "1"]},
    }
    return MergeTask(**{**given, **changes})


def plan_of(task: Task) -> JobPlan:
    return JobPlan(table="db.t", table_uuid="u", staging_location="/t/.staging/one-1", task=task)


ZORDER = plans.Sorting(zorder=plans.ZOrder(columns=("id", "ts"), text_bytes=8, most_bytes=64), ranges_per_output=2)
FILTER = parse_filter("id = 3 and ts > '2026-01-01T00:00:00+00:00'", write_settings().schema)
TASKS = {
    "append": plans.AppendTask(
        write=write_settings(),
        spec=PartitionSpec(),
        source=FILES,
        sorts_rows=True,
        row_check=plans.Condition(text="id > 1", predicate=parse("id > 1")),
        last_column_id=7,
    ),
    "compact": CompactTask(write=write_settings(), spec=PartitionSpec(), table=table_input(), sorting=ZORDER),
    "compact in order": CompactTask(write=write_settings(), spec=PartitionSpec(), table=table_input()),
    "delete": plans.DeleteTask(write=write_settings(), table=table_input(), row_filter=FILTER, mode="merge-on-read"),
    "merge": merge_task(),
    "inventory": plans.InventoryTask(units=(sealed("/t/0.json.gz"), sealed("/t/1.json.gz"))),
}


class TestPlan:
    """A plan says all that a job needs, and survives the way through its document."""

    @pytest.mark.parametrize(
        "source",
        [FILES, Source.from_sql("select 'ä' as x"), Source.from_callable("jobs.load:build", {"n": 3, "deep": [None]})],
        ids=lambda source: source.kind,
    )
    def test_a_plan_of_each_source_comes_back_as_it_was(self, source, tmp_path):
        schema = schema_from_shorthand({"id": "long not null", "tags": "list<string>", "ts": "timestamptz"})
        plan = make_plan(
            tmp_path,
            source,
            columns=schema,
            partition_by=["day(ts)", "bucket(4, id)"],
            sort_order=sort_order_from_shorthand(["ts desc"], schema),
            properties={"write.parquet.compression-codec": "zstd"},
            operation_key="dag/run/task/-1/0",
            try_number=2,
            distribution_mode="none",
            parallelism=3,
        )
        assert JobPlan.from_json(plan.to_json()).completed(source.withheld_values()) == plan

    @pytest.mark.parametrize(("source", "secret", "withheld"), [
        (Source.from_callable("jobs.load:build", {"key": "hunter22", "day": 7}), "hunter22", ["kwargs"]),
        (Source.from_files(("/a", "https://h/x.csv?X-Amz-Signature=hunter22&b=c")), "hunter22", ["files"]),
        (Source.from_files("https://lake/x.csv?sv=1&sig=hunter22"), "hunter22", ["files"]),
        (Source.from_files("https://h/x.csv?X-Goog-Signature=hunter22"), "hunter22", ["files"]),
        (Source.from_files("https://h/x.csv?Expires=1&Signature=hunter22"), "hunter22", ["files"]),
        (Source.from_files("https://hunter22hunter22@h/x.csv"), "hunter22", ["files"]),
        (Source.from_sql("select * from f('https://h/x?token=hunter22')"), "hunter22", ["sql"]),
        (Source.from_files("/data/*.csv"), "hunter22", []),
    ])  # fmt: skip
    def test_its_document_and_text_hold_no_secret_and_no_argument(self, source, secret, withheld, tmp_path):
        plan = make_plan(tmp_path, source)
        stored = plan.to_json()
        assert secret not in stored.decode()
        assert "kwargs" not in withheld or secret not in repr(plan)
        assert sorted(source.withheld_values()) == withheld
        read = JobPlan.from_json(stored)
        assert read.completed(json.loads(json.dumps(source.withheld_values()))) == plan
        if withheld:
            with pytest.raises(InvalidInputError, match=f"withholds {withheld[0]} of the job's source, and the"):
                read.completed({})
            assert JobPlan.from_json(read.to_json()) == read, "and its own document is no other"
        with pytest.raises(InvalidInputError, match="and the job was given sql, x"):
            read.completed({"x": 1, "sql": "drop table t"})

    @pytest.mark.parametrize(("changes", "withheld"), [
        ({"on": "target.id = f(source.id, 'https://h/x?token=hunter22')"}, ["on"]),
        ({"clauses": (
            Clause(rows="matched", action="delete", condition="f('https://h/x?token=hunter22') = 1"),
            Clause(rows="matched", action="update", columns=("id", "ts"), expressions=("1", "f('password=hunter22')")),
        )}, ["clauses.0.condition", "clauses.1.expressions.1"]),
        ({"source": Source.from_sql("select * from f('https://h/x?token=hunter22')")}, ["sql"]),
        ({"source": None, "on": None}, []),
    ])  # fmt: skip
    def test_the_document_of_a_merge_holds_no_secret_of_its_sql(self, changes, withheld):
        plan = plan_of(merge_task(**changes))
        stored = plan.to_json()
        assert b"hunter22" not in stored
        assert sorted(plan.withheld_values()) == withheld
        read = JobPlan.from_json(stored)
        assert sorted(read.withheld) == withheld
        assert read.completed(json.loads(json.dumps(plan.withheld_values()))) == plan
        assert JobPlan.from_json(read.to_json()) == read, "and its own document is no other"
        if withheld:
            with pytest.raises(InvalidInputError, match=f"the plan withholds {withheld[0]}"):
                read.completed({})
        with pytest.raises(InvalidInputError, match=r"and the job was given|the job was given x"):
            read.completed({**plan.withheld_values(), "x": 1})

    @pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
    def test_a_plan_of_each_operation_comes_back_as_it_was(self, task):
        assert JobPlan.from_json(plan_of(task).to_json()) == plan_of(task)

    @pytest.mark.parametrize("version", [1, 2, 3, 5, 2**40])
    def test_a_document_of_another_version_is_refused(self, version, tmp_path):
        document = changed(make_plan(tmp_path, FILES).to_json(), version=version)
        message = rf"version {version}, this airflow_iceberg reads version 4; use the"
        with pytest.raises(UnsupportedError, match=message):
            JobPlan.from_json(document, path=PATH)

    @pytest.mark.parametrize(("changes", "message"), [
        ({"table": 1}, "unexpected type int (expected str) in 'table'"),
        ({"table": ...}, "missing field 'table'"),
        ({"version": True}, "unexpected type bool (expected int) in 'version'"),
        ({"version": 0}, "job plan has version 0, expected 4"),
        ({"parallelism": 0}, "broken job plan: parallelism is 0, expected at least 1"),
        ({"parallelism": -1}, "unexpected number -1 (expected 0 or more) in 'parallelism'"),
        ({"try_number": -1}, "unexpected number -1 (expected 0 or more) in 'try-number'"),
        ({"staging_location": "/t/"}, "broken job plan: staging location '/t/' does not end in a name"),
        ({"task": ...}, "missing field 'task'"),
        ({"task": None}, "unexpected type null (expected object) in 'task'"),
        ({"task": []}, "unexpected type list (expected object) in 'task'"),
        ({"task": {}}, "missing field 'task.kind'"),
        ({"task__kind": 1}, "unexpected type int (expected str) in 'task.kind'"),
        ({"task__source": {"kind": "files"}}, "missing field 'task.source.files'"),
        ({"task__source__files": ["/a", 1]}, "unexpected type int (expected str) in 'task.source.files[1]'"),
        ({"task__source__kind": "table"}, "broken job plan: unknown source kind 'table'; one of files, sql"),
        ({"task__source__files": ["s3://me:secret@b/a"]}, "has a password in its name"),
        ({"task__distribution_mode": "all"}, "broken job plan: unknown write.distribution-mode 'all'"),
        ({"task__sorts_rows": 1}, "unexpected type int (expected bool) in 'task.sorts-rows'"),
        ({"task__last_column_id": -3}, "unexpected number -3 (expected 0 or more) in 'task.last-column-id'"),
        ({"task__row_check": {"text": "x"}}, "missing field 'task.row-check.predicate'"),
        ({"task__write__format_version": 4}, "broken job plan: format version is 4, expected 1, 2 or 3"),
        ({"task__write__schema": []}, "unexpected type list (expected object) in 'task.write.schema'"),
        ({"task__write__data_location": ""}, "broken job plan: the data location is empty"),
        ({"task__write__properties": {"a": 1}}, "unexpected type int (expected str) in 'task.write.properties.a'"),
        ({"task__write__target_file_size_bytes": 0}, "target file size is 0, expected at least 1"),
        ({"task__write__target_file_size_bytes": -1}, "in 'task.write.target-file-size-bytes'"),
        ({"task__write__target_file_size_bytes": 1 << 80}, "unexpected number of 81 bits (expected an int of 64)"),
    ])  # fmt: skip
    def test_a_broken_document_names_its_place(self, changes, message, tmp_path):
        refused(changed(make_plan(tmp_path, FILES).to_json(), **changes), message)

    @pytest.mark.parametrize(("task", "changes", "message"), [
        *(
            (task, {"task__kind": kind}, f"missing field 'task.{missing}'")
            for task, kind, missing in (
                ("append", "compact", "table"),
                ("append", "delete", "table"),
                ("append", "inventory", "units"),
                ("compact", "append", "source"),
                ("compact", "delete", "row-filter"),
                ("delete", "append", "spec"),
                ("delete", "compact", "spec"),
                ("inventory", "append", "write"),
                ("inventory", "delete", "table"),
            )
        ),
        ("compact", {"task__table": ...}, "missing field 'task.table'"),
        ("compact", {"task__table__schemas": []}, "broken job plan: no schema to read the table's files by"),
        ("compact", {"task__table__specs": [1]}, "unexpected type int (expected object) in 'task.table.specs[0]'"),
        ("compact", {"task__sorting__ranges_per_output": 0}, "number of ranges of an output is 0"),
        ("compact", {"task__sorting__claimed_order_id": -1}, "in 'task.sorting.claimed-order-id'"),
        ("compact", {"task__sorting__zorder__columns": "id"}, "(expected list) in 'task.sorting.zorder.columns'"),
        ("compact", {"task__sorting__zorder__text_bytes": -8}, "in 'task.sorting.zorder.text-bytes'"),
        ("compact", {"task__sorting__zorder__most_bytes": 0}, "number of bytes of a z-order is 0"),
        ("delete", {"task__mode": "none"}, "broken job plan: unknown delete mode 'none'; one of copy-on-write"),
        ("delete", {"task__row_filter": None}, "unexpected type null (expected object) in 'task.row-filter'"),
        ("delete", {"task__row_filter": {"type": "evil"}}, "evil"),
        ("inventory", {"task__units": {}}, "unexpected type object (expected list) in 'task.units'"),
        ("inventory", {"task__units": [None]}, "unexpected type null (expected object) in 'task.units[0]'"),
    ])  # fmt: skip
    def test_so_does_a_broken_task_or_one_of_another_kind(self, task, changes, message):
        refused(changed(plan_of(TASKS[task]).to_json(), **changes), message)

    @pytest.mark.parametrize("torn", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
    def test_torn_bytes_are_a_format_error(self, torn):
        refused(torn, "")

    @pytest.mark.parametrize("kind", ["rewrite", "walk", "", "AppendTask", "__class__"])
    def test_an_unknown_operation_is_not_guessed_at(self, kind, tmp_path):
        known = "append, compact, delete, merge, inventory"
        with pytest.raises(UnsupportedError, match=f"job operation '{kind}' is not supported; one of {known}"):
            JobPlan.from_json(changed(make_plan(tmp_path, FILES).to_json(), task__kind=kind))

    def test_the_documents_of_a_try_have_the_name_of_its_files(self):
        plan = plan_of(TASKS["inventory"])
        assert (plan.operation, plan.file_prefix) == ("inventory", "one-1")
        assert (plan.location, plan.result_location) == ("/t/.staging/one-1/plan.json", "/t/.staging/one-1/result.json")


def refused(document: bytes, message: str, kind: type = JobPlan) -> None:
    with pytest.raises(FormatError) as caught:
        kind.from_json(document, path=PATH)
    assert message in str(caught.value)
    assert caught.value.path == PATH


class TestSource:
    """A source is exactly one of files, a query and a callable."""

    @pytest.mark.parametrize("value", [False, 1, None, [","]])
    def test_options_are_text(self, value):
        """Other values would be another thing after the way through the plan's JSON."""
        with pytest.raises(InvalidInputError, match=r"format option 'header' is .*, expected text such as"):
            Source.from_files("/in/*.csv", format_options={"header": value})

    @pytest.mark.parametrize("value", [float("nan"), {1}, object()])
    def test_arguments_of_a_callable_are_json(self, value):
        with pytest.raises(InvalidInputError, match="op_kwargs are not JSON values"):
            Source.from_callable("jobs.orders:yesterday", {"x": value})

    @pytest.mark.parametrize("value", [
        "it's \\ \x00 \u2028", 5, -(2**63), 0.1, True, None, Decimal("1.10"), date(2026, 1, 1), b"\x00\xff",
        [1, "a", None], datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ])  # fmt: skip
    def test_values_of_a_query_come_back_as_they_were(self, value):
        source = Source.from_sql("select :x", {"x": value})
        document = json.loads(json.dumps(source.to_dict()))
        assert Source.from_dict(Fields(document, "", None)) == source
        assert source.sql_args == {"x": value}

    @pytest.mark.parametrize(("params", "message"), [
        ("x", "sql_params are a str, expected names with values"),
        ({"x": 1, "y": 2}, "sql_params has 'y', and the query has no placeholder :y; a placeholder stands without"),
        ({"x": []}, "sql_params['x'] is [], expected a list of one or more single values"),
        ({"x": [[1]]}, "sql_params['x'] is [[1]], expected a list of one or more single values"),
        ({"x": {}}, "sql_params['x'] is a dict, expected text, a number"),
        ({"x": 2**63}, "sql_params['x'] is 9.223e+18, which is no integer of Spark's; bind a Decimal"),
        ({"x": "\udc00"}, "sql_params['x'] is no Unicode text"),
        ({"x": datetime.fromisoformat("2026-01-01")}, "sql_params['x'] is '2026-01-01T00:00:00' without a time zone"),
    ])  # fmt: skip
    def test_values_that_no_query_takes(self, params, message):
        with pytest.raises(InvalidInputError) as caught:
            Source.from_sql("select :x, ':y', \"it's \\\":y\", `:y`, a::y /* :y */ -- :y", params)
        assert str(caught.value).startswith(message)

    @pytest.mark.parametrize(
        "form", ["x", ["text", "x"], ["int", "x"], ["list", 5], 5, ["int"], ["list", [["a", "b"]]]]
    )
    def test_values_that_no_plan_has(self, form):
        with pytest.raises(InvalidInputError, match="is not in the form of a plan"):
            Source(kind="sql", sql="select :x", sql_params={"x": form})

    @pytest.mark.parametrize("wrong", [
        {"kind": "files", "files": ("/a.csv",), "sql_params": {"x": ["int", "1"]}},
        {"kind": "files"},
        {"kind": "sql", "sql": "select 1", "files": ("/a.csv",)},
        {"kind": "callable", "sql": "select 1"},
        {"kind": "kafka"},
        {"kind": "files", "files": ("/a",), "file_format": "xlsx"},
        {"kind": "callable", "callable": "no_colon"},
        {"kind": "callable", "callable": "a-b:c"},
        {"kind": "callable", "callable": "a:"},
    ])  # fmt: skip
    def test_anything_else_is_refused(self, wrong):
        with pytest.raises(InvalidInputError):
            Source(**wrong)

    def test_the_semicolon_that_people_end_a_query_with_is_dropped(self):
        assert Source.from_sql(" select 1 ;\n").sql == "select 1"


class TestResult:
    """A result names the staged files, or says why there are none."""

    def test_a_result_comes_back_as_it_was(self):
        result = JobResult(
            status="succeeded",
            data_files=({"file-path": "file:///d/a.parquet"},),
            groups=(GroupOutput(group=3, data_files=({"file-path": "a", "deep": {"x": [1]}},), record_count=2),),
            changes=(FileChange(file_path="b", deleted_count=4, is_gone=True, updated_count=2),),
            inserted_count=9,
            conflict_filter={"is": "true"},
            units=(InventoryUnitResult(number=0, file=sealed("/c"), rows=5),),
            schema=schema_from_shorthand({"id": "long"}),
            record_count=3,
            source_files=1,
            warnings=("w",),
            timings={"total": 1.5},
            engine="local",
        )
        assert JobResult.from_json(result.to_json()) == result
        assert JobResult.from_json(JobResult(status="succeeded").to_json()) == JobResult(status="succeeded")

    @pytest.mark.parametrize("name", ["InvalidInputError", "FormatError", "StorageError", "NotFoundError"])
    def test_an_error_is_raised_again_as_the_class_that_the_job_raised(self, name):
        kind = getattr(errors, name)
        failed = JobResult.from_json(JobResult.failed(kind("column 'id' is missing")).to_json())
        with pytest.raises(kind) as caught:
            failed.raise_for_error()
        assert type(caught.value) is kind
        assert str(caught.value) == "column 'id' is missing"

    def test_a_format_error_keeps_its_path(self):
        failed = JobResult.from_json(JobResult.failed(FormatError("torn footer", path="file:///a.parquet")).to_json())
        with pytest.raises(FormatError, match=r"^torn footer of file:///a\.parquet$"):
            failed.raise_for_error()

    def test_an_error_that_is_not_ours_keeps_its_name_in_the_message(self):
        error = JobError.from_exception(ZeroDivisionError("by zero")).to_exception()
        assert type(error) is errors.IcebergError
        assert str(error) == "the job failed unexpectedly: ZeroDivisionError: by zero"

    @pytest.mark.parametrize("kind", ["NoSuchError", "Exception", "builtins", "__name__"])
    def test_a_kind_that_is_no_error_of_ours_is_a_plain_one(self, kind):
        assert type(JobError(kind=kind, message="m").to_exception()) is errors.IcebergError

    @pytest.mark.parametrize(("changes", "message"), [
        ({"record_count": -1}, "unexpected number -1 (expected 0 or more) in 'record-count'"),
        ({"source_files": -1}, "in 'source-files'"),
        ({"data_files": [1]}, "unexpected type int (expected object) in 'data-files[0]'"),
        ({"groups": [{"group": -1}]}, "unexpected number -1 (expected 0 or more) in 'groups[0].group'"),
        ({"changes": [{"file-path": "a", "deleted-count": -1}]}, "in 'changes[0].deleted-count'"),
        ({"units": [{"number": 0, "file": {"location": 1}, "rows": 0}]}, "in 'units[0].file.location'"),
        ({"units": [{"number": 0, "file": {"location": "/c", "seal": 1}, "rows": 0}]}, "in 'units[0].file.seal'"),
        ({"units": ...}, "missing field 'units'"),
        ({"timings": {"total": "soon"}}, "unexpected type str (expected float) in 'timings.total'"),
        ({"warnings": [{}]}, "unexpected type object (expected str) in 'warnings[0]'"),
        ({"schema": 1}, "in 'schema'"),
        ({"status": "fine"}, "broken job result: unknown job status 'fine'"),
        ({"status": "failed"}, "broken job result"),
    ])  # fmt: skip
    def test_a_forged_document_names_its_place(self, changes, message):
        refused(changed(JobResult(status="succeeded").to_json(), **changes), message, JobResult)


@pytest.mark.costly
def test_reading_documents_costs_neither_pyarrow_nor_pyspark():
    code = "import sys, airflow_iceberg.jobs.protocol.plan; print({'pyarrow', 'pyspark', 'airflow'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).strip() == "set()"
