"""Random sources of JSON lines and CSV, in appends, overwrites and merges, against a model of what is documented."""

import csv
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.format import types as t
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.table import Table
from tests.support import json_sources
from tests.support.builders import job_work, new_table
from tests.support.json_sources import TEXTS, as_text, columns_of, converted, documents, write
from tests.support.sampling import SEED, some

pytestmark = pytest.mark.generated
CASES = some(range(160), each=16)


def shape_of(type_: t.IcebergType) -> json_sources.Type:
    if isinstance(type_, t.StructType):
        return {field.name: shape_of(field.type) for field in type_.fields}
    return [shape_of(type_.element)] if isinstance(type_, t.ListType) else str(type_)


def shorthand(kind: json_sources.Type) -> Any:
    if isinstance(kind, dict):
        return "struct<" + ", ".join(f"{name}: {shorthand(inner)}" for name, inner in kind.items()) + ">"
    return f"list<{shorthand(kind[0])}>" if isinstance(kind, list) else kind


@pytest.fixture
def random(request, monkeypatch):
    found = Random(f"{SEED} {request.node.name}")
    monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.JSON_BATCH_ROWS", found.randint(1, 4))
    monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.TEXT_BLOCK_BYTES", found.choice([64, 300, 16 << 20]))
    # Of half of the sources, the tasks of a phase find the columns.
    monkeypatch.setattr("airflow_iceberg.jobs.sources.new_columns._MOST_FILES", found.choice([0, 16]))
    monkeypatch.setattr("airflow_iceberg.jobs.sources.files.MIN_TASK_BYTES", found.choice([50, 16 << 20]))
    return found


def check(table: Table, files: list[list[dict[str, Any]]], names: dict[str, str]) -> None:
    """Check the rows of a table; `names` are its columns by the names in the source."""
    kinds = columns_of(files) | {"id": "long"}
    found = {field.name: as_text(shape_of(field.type)) for field in table.refresh().schema().fields}
    assert found == {names.get(name, name): as_text(kind) for name, kind in kinds.items()}
    rows = sorted((row for file in files for row in file), key=lambda row: row["id"])
    expected = [{names.get(n, n): converted(row.get(n), kind) for n, kind in kinds.items()} for row in rows]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected


class TestJson:
    """The types of a source are those of all its values; a missing key is null; texts have what is written."""

    @pytest.mark.parametrize("case", CASES)
    def test_new_columns(self, case, random, tmp_path):
        files = documents(random)
        table = new_table(tmp_path, schema={"id": "long"})
        source = Source.from_files(write(files, tmp_path / "in"))
        if random.random() < 0.5:
            append(job_work(table), AppendRequest(rows=source, schema_evolution="add_columns"))
        else:
            request = OverwriteRequest(rows=source, schema_evolution="add_columns", replace="table")
            overwrite(job_work(table), request)
        check(table, files, {})

    @pytest.mark.parametrize("case", CASES)
    def test_a_merge_sees_them(self, case, random, tmp_path):
        files = documents(random)
        kinds = columns_of(files)
        names = {name: f"new_{name}" for name in kinds if name != "id"}
        table = new_table(tmp_path, schema={"id": "long", **{new: shorthand(kinds[n]) for n, new in names.items()}})
        columns = ", ".join(["id", *names.values()])
        values = ", ".join(["source.id", *(f"source.{name}" for name in names)])
        source = Source.from_files(write(files, tmp_path / "in"))
        clauses = f"when not matched then insert ({columns}) values ({values})"
        merge(job_work(table), MergeRequest(rows=source, on=["id"], clauses=clauses, dialect="duckdb"))
        check(table, files, names)

    @pytest.mark.parametrize("case", CASES)
    def test_columns_of_the_table(self, case, random, tmp_path):
        """The table's types win, and no value changes them: an upsert of what was loaded changes nothing."""
        files = documents(random)
        kinds = columns_of(files)
        table = new_table(tmp_path, schema={"id": "long", **{n: shorthand(k) for n, k in kinds.items() if n != "id"}})
        source = Source.from_files(write(files, tmp_path / "in"))
        append(job_work(table), AppendRequest(rows=source))
        check(table, files, {})
        clauses = "when matched then update set * when not matched then insert *"
        if kinds:
            merge(job_work(table), MergeRequest(rows=source, on=["id"], clauses=clauses, dialect="duckdb"))
        check(table, files, {})


class TestCsv:
    """A column that the table does not have is text, and one that it has is parsed as the table's type."""

    @pytest.mark.parametrize("case", CASES)
    def test_all_columns(self, case, random, tmp_path):
        texts = [*TEXTS, "00123", "+49123", "12345678901234567890", "1.50", "-0", "NaN", " x ", "2026-01-01", None]
        rows, names = [], []
        (tmp_path / "in").mkdir()
        for number in range(random.randint(1, 3)):
            columns = random.sample(["id", "n", *"abc"], 5 if number == 0 else random.randint(2, 5))
            columns = columns if "id" in columns else ["id", *columns]
            given = [{n: random.choice(texts) for n in columns} for _ in range(random.randrange(1, 5))]
            for row in given:
                row["id"] = str(len(rows))
                row |= {"n": str(random.randrange(100))} if "n" in row else {}
                rows.append(row)
            names.append(str(tmp_path / "in" / f"{number}.csv"))
            self.write(Path(names[-1]), columns, given)
        how = random.choice(["append", "merge"])
        table = new_table(tmp_path, schema={"id": "long", "n": "int"})
        source = Source.from_files(names)
        if how == "append":
            append(job_work(table), AppendRequest(rows=source, schema_evolution="add_columns"))
        else:
            table.alter([{"add_column": {"name": f"new_{name}", "type": "string"}} for name in "abc"])
            clauses = """when not matched then insert (id, n, new_a, new_b, new_c)
                values (source.id, source.n, source.a, source.b, source.c)"""
            merge(job_work(table), MergeRequest(rows=source, on=["id"], clauses=clauses, dialect="duckdb"))
        found = {name.removeprefix("new_"): name for name in table.refresh().schema().names}
        kinds = {field.name: str(field.type) for field in table.schema().fields}
        assert kinds == {"id": "long", "n": "int", **{found[name]: "string" for name in "abc"}}
        read = [{name: row[found[name]] for name in ("id", "n", *"abc")} for row in self.rows(table)]
        assert read == [
            {"id": int(row["id"]), "n": int(row["n"]) if row.get("n") else None, **{n: row.get(n) for n in "abc"}}
            for row in rows
        ]

    def rows(self, table: Table) -> list[dict[str, Any]]:
        found: pa.Table = table.scan().to_arrow()
        return found.sort_by("id").to_pylist()

    def write(self, path: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
        with path.open("w", newline="") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([["" if row[name] is None else row[name] for name in columns] for row in rows])
