"""Source files whose types are found by tasks of Spark, and what Spark's own reader says of JSON lines."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.staged_files import read_changed_files
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.jobs.builders import IO, make_plan, rows_of
from tests.jobs.submissions import HERE, VERSIONS
from tests.support.builders import new_catalog
from tests.support.data_files import read_file
from tests.support.json_sources import as_text, columns_of, documents, write
from tests.support.sampling import SEED, sampled
from tests.support.spark_programs import SPARK_4

# More files than the driver describes by itself.
MANY = 20


def append_plan(root: Path) -> JobPlan:
    files = [[{"id": n, **({"more": n} if n < 15 else {"more": 0.5, "x": {"y": [n]}})}] for n in range(MANY)]
    return make_plan(root, Source.from_files(write(files, root / "in")), last_column_id=3)


def merge_plans(root: Path) -> Mapping[str, JobPlan]:
    """Return plans of merges of files whose columns differ in order, number and case."""
    table = Table.create(new_catalog(root), "db.t", schema={"id": "string", "n": "int", "s": "string"})
    folder = root / "feed"
    folder.mkdir()
    for number in range(MANY):
        order = ["ID", "n", "extra"] if number % 2 else ["n", "ID"]
        values = {"ID": f"0{number}", "n": str(number), "extra": f"00{number}"}
        text = ",".join(order) + "\n" + ",".join(values[name] for name in order) + "\n"
        (folder / f"{number:02d}.csv").write_text(text)
    rows = [[{"id": f"{n}", "old": 9, "new": 10, **({"late": [1.5, n]} if n == 19 else {})}] for n in range(MANY)]
    csv_clauses = "when not matched then insert (id, n, s) values (source.id, source.n, source.extra)"
    json_clauses = """when not matched and source.old < source.new
        then insert (id, n, s) values (source.id, size(source.late), string(source.late[0]))"""
    requests = {
        "csv": (Source.from_files(f"{folder}/*.csv"), csv_clauses),
        "json": (Source.from_files(write(rows, root / "json")), json_clauses),
    }
    plans: dict[str, JobPlan] = {}

    for name, (source, clauses) in requests.items():

        def keep(plan: JobPlan, name: str = name) -> JobResult:
            plans[name] = plan
            raise StorageError("it runs later")

        with pytest.raises(StorageError):
            merge(Work(table, run=keep), MergeRequest(rows=source, on=["id"], clauses=clauses))
    return plans


class Ran:
    def __init__(self, spark: Any, root: Path) -> None:
        self.plans = {"append": append_plan(root / "append"), **merge_plans(root / "merge")}
        for plan in self.plans.values():
            if not IO.exists(plan.location):
                IO.create(plan.location, plan.to_json())
        spark.run(HERE / "spark_program.py", *(plan.location for plan in self.plans.values()))

    def result(self, name: str) -> JobResult:
        plan = self.plans[name]
        found = JobResult.from_json(IO.read(plan.result_location), path=plan.result_location)
        found.raise_for_error()
        return found

    def merged(self, name: str) -> list[tuple[Any, ...]]:
        plan = self.plans[name]
        files = read_changed_files(plan, self.result(name).data_files)
        data = [file for file in files if file.content is FileContent.DATA]
        schema = plan.task.write.schema
        rows = [row for file in data for batch in read_file(IO, file, schema=schema) for row in batch.to_pylist()]
        return sorted(tuple(row.values()) for row in rows)


@pytest.fixture(scope="module", params=VERSIONS)
def ran(request, spark_of, tmp_path_factory):
    return Ran(spark_of(request.param), tmp_path_factory.mktemp("sources"))


class TestTasksOfSpark:
    """The columns of a source are found over all its files, and are the same for all tasks."""

    def test_an_append_with_new_columns(self, ran):
        schema = ran.result("append").schema
        assert schema is not None
        assert [(field.name, str(field.type)) for field in schema.fields[3:4]] == [("more", "double")]
        rows = sorted(rows_of(ran.plans["append"], ran.result("append")), key=lambda row: row["id"])
        assert [row["more"] for row in rows] == [*map(float, range(15)), *[0.5] * 5]
        assert [row["x"] for row in rows] == [None] * 15 + [{"y": [n]} for n in range(15, 20)]
        assert "describe" in ran.result("append").timings

    def test_a_merge_of_csv(self, ran):
        expected = [(f"0{n}", n, f"00{n}" if n % 2 else None) for n in range(MANY)]
        assert ran.merged("csv") == sorted(expected)

    def test_a_merge_of_json(self, ran):
        rows = ran.merged("json")
        assert [row[0] for row in rows] == sorted(str(n) for n in range(MANY))
        assert [row[2] for row in rows if row[0] == "19"] == ["1.5"]


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.generated
def test_spark_infers_the_same_types(spark_of, tmp_path):
    """But for an empty text, an object without keys, and a number of more than 38 digits."""
    random, cases = Random(SEED), []
    while len(cases) < sampled(200):
        files = [[row for row in file if not has_odd(row)] for file in documents(random)]
        if any(files):
            write(files, tmp_path / str(len(cases)))
            cases.append(files)
    spark_of(SPARK_4).run(
        HERE / "read_json_program.py", str(tmp_path / "out"), *(str(tmp_path / str(n)) for n in range(len(cases)))
    )
    for files, schema in zip(cases, json.loads((tmp_path / "out").read_text()), strict=True):
        assert of_spark(schema) == as_text(columns_of(files))


def has_odd(value: Any) -> bool:
    if isinstance(value, dict):
        return not value or any(map(has_odd, value.values()))
    return isinstance(value, list) and any(map(has_odd, value))


def of_spark(kind: Any) -> str:
    """Return a type of Spark as the schema of a table writes it."""
    if isinstance(kind, str):
        return kind.replace(",", ", ")
    if kind["type"] == "array":
        return f"list<{of_spark(kind['elementType'])}>"
    fields = sorted((field["name"], of_spark(field["type"])) for field in kind["fields"])
    return "struct<" + ", ".join(f"{name}: {inner}" for name, inner in fields) + ">"
