import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg import errors
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobError, JobResult
from airflow_iceberg.jobs.protocol.source import Source
from tests.jobs.builders import make_plan

FILES = Source.from_files(["/in/*.csv"], file_format="csv", format_options={"delimiter": ";"})
PATH = "file:///t/.staging/1/plan.json"


def changed(document: bytes, **changes: Any) -> bytes:
    """Return a JSON document with other values; ... takes a key out."""
    fields = {**json.loads(document), **{name.replace("_", "-"): value for name, value in changes.items()}}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


class TestPlan:
    """A plan says all that a job needs, and survives the way through its document."""

    @pytest.mark.parametrize(
        "source",
        [FILES, Source.from_sql("select 'ä' as x"), Source.from_callable("jobs.load:build", {"n": 3, "deep": [None]})],
        ids=lambda source: source.kind,
    )
    def test_a_plan_comes_back_as_it_was(self, source: Source, tmp_path: Path) -> None:
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
        assert JobPlan.from_json(plan.to_json()) == plan

    def test_a_newer_document_is_refused(self, tmp_path: Path) -> None:
        document = changed(make_plan(tmp_path, FILES).to_json(), version=2)
        with pytest.raises(UnsupportedError, match="job plan has version 2, this airflow_iceberg knows up to 1"):
            JobPlan.from_json(document, path=PATH)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"table": 1}, "unexpected type int (expected str) in 'table'"),
            ({"table": ...}, "missing field 'table'"),
            ({"version": True}, "unexpected type bool (expected int) in 'version'"),
            ({"version": 0}, "job plan has version 0, expected 1"),
            ({"parallelism": 0}, "broken job plan: parallelism is 0, expected at least 1"),
            ({"file_prefix": "a/b"}, "broken job plan: file prefix 'a/b' is empty or has a '/' in it"),
            ({"source": {"kind": "files"}}, "missing field 'source.files'"),
        ],
    )
    def test_a_broken_document_names_its_place(self, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
        document = changed(make_plan(tmp_path, FILES).to_json(), **changes)
        with pytest.raises(FormatError) as caught:
            JobPlan.from_json(document, path=PATH)
        assert message in str(caught.value)
        assert caught.value.path == PATH

    @pytest.mark.parametrize("torn", [b"", b"{", b"[]", b"\xff"])
    def test_torn_bytes_are_a_format_error(self, torn: bytes) -> None:
        with pytest.raises(FormatError) as caught:
            JobPlan.from_json(torn, path=PATH)
        assert caught.value.path == PATH

    def test_an_unknown_operation_is_not_guessed_at(self, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedError, match="job operation 'compact' is not supported"):
            JobPlan.from_json(changed(make_plan(tmp_path, FILES).to_json(), operation="compact"))


class TestSource:
    """A source is exactly one of files, a query and a callable."""

    @pytest.mark.parametrize("value", [False, 1, None, [","]])
    def test_options_are_text(self, value: Any) -> None:
        """Other values would be another thing after the way through the plan's JSON."""
        with pytest.raises(InvalidInputError, match=r"format option 'header' is .*, expected text such as"):
            Source.from_files("/in/*.csv", format_options={"header": value})

    @pytest.mark.parametrize("value", [float("nan"), {1}, object()])
    def test_arguments_of_a_callable_are_json(self, value: Any) -> None:
        with pytest.raises(InvalidInputError, match="op_kwargs are not JSON values"):
            Source.from_callable("jobs.orders:yesterday", {"x": value})

    @pytest.mark.parametrize(
        "wrong",
        [
            {"kind": "files"},
            {"kind": "sql", "sql": "select 1", "files": ("/a.csv",)},
            {"kind": "callable", "sql": "select 1"},
            {"kind": "kafka"},
            {"kind": "files", "files": ("/a",), "file_format": "xlsx"},
            {"kind": "callable", "callable": "no_colon"},
            {"kind": "callable", "callable": "a-b:c"},
            {"kind": "callable", "callable": "a:"},
        ],
    )
    def test_anything_else_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInputError):
            Source(**wrong)

    def test_the_semicolon_that_people_end_a_query_with_is_dropped(self) -> None:
        assert Source.from_sql(" select 1 ;\n").sql == "select 1"


class TestResult:
    """A result names the staged files, or says why there are none."""

    def test_a_result_comes_back_as_it_was(self) -> None:
        result = JobResult(
            status="succeeded",
            data_files=({"file-path": "file:///d/a.parquet"},),
            record_count=3,
            source_files=1,
            warnings=("w",),
            timings={"total": 1.5},
            engine="local",
        )
        assert JobResult.from_json(result.to_json()) == result

    @pytest.mark.parametrize("name", ["InvalidInputError", "FormatError", "StorageError", "NotFoundError"])
    def test_an_error_is_raised_again_as_the_class_that_the_job_raised(self, name: str) -> None:
        kind = getattr(errors, name)
        failed = JobResult.from_json(JobResult.failed(kind("column 'id' is missing")).to_json())
        with pytest.raises(kind) as caught:
            failed.raise_for_error()
        assert type(caught.value) is kind
        assert str(caught.value) == "column 'id' is missing"

    def test_a_format_error_keeps_its_path(self) -> None:
        failed = JobResult.from_json(JobResult.failed(FormatError("torn footer", path="file:///a.parquet")).to_json())
        with pytest.raises(FormatError, match=r"^torn footer of file:///a\.parquet$"):
            failed.raise_for_error()

    def test_an_error_that_is_not_ours_keeps_its_name_in_the_message(self) -> None:
        error = JobError.from_exception(ZeroDivisionError("by zero")).to_exception()
        assert type(error) is errors.IcebergError
        assert str(error) == "the job failed unexpectedly: ZeroDivisionError: by zero"

    @pytest.mark.parametrize("kind", ["NoSuchError", "Exception", "builtins", "__name__"])
    def test_a_kind_that_is_no_error_of_ours_is_a_plain_one(self, kind: str) -> None:
        assert type(JobError(kind=kind, message="m").to_exception()) is errors.IcebergError

    def test_status_and_error_go_together(self) -> None:
        with pytest.raises(FormatError, match="broken job result"):
            JobResult.from_json(changed(JobResult(status="succeeded").to_json(), status="failed"))


def test_reading_documents_costs_neither_pyarrow_nor_pyspark() -> None:
    code = (
        "import sys, airflow_iceberg.jobs.protocol.plan\n"
        "print([name for name in ('pyarrow', 'pyspark', 'airflow') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert found.stdout.strip() == "[]"
