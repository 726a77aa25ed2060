"""Tables whose new data files are Avro, tables with files of several formats, and `write_format`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.avro.container import read_header
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.data.test_metrics import arrow
from tests.support import strategies
from tests.support.builders import add_file, ids, job_work, lineage, new_table, staged
from tests.support.changes import live_entries
from tests.support.data_files import write_data_file
from tests.support.memory import MemoryCatalog
from tests.support.sampling import examples

FORMAT, DELETE_FORMAT = "write.format.default", "write.delete.format.default"
COLUMNS = {"id": "long", "part": "string", "at": "timestamptz"}


def make(folder: Path, version: int = 2, file_format: str = "avro", **options: Any) -> Table:
    properties = {"format-version": str(version), FORMAT: file_format, **options.pop("properties", {})}
    return new_table(folder, schema=COLUMNS, partition_by=["part"], properties=properties, **options)


def rows(numbers: Sequence[int]) -> pa.Table:
    numbers = list(numbers)
    parts = ["ab"[number % 2] for number in numbers]
    return pa.table({"id": numbers, "part": parts, "at": pa.array(numbers, pa.timestamp("us", "UTC"))})


def source(folder: Path, numbers: Sequence[int]) -> Source:
    path = folder / f"source-{len(list(folder.glob('source-*')))}.parquet"
    pq.write_table(rows(numbers), path)
    return Source.from_files(str(path))


def files(table: Table, content: int = 0) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(table) if entry.data_file.content == content]


def formats(table: Table, content: int = 0) -> list[str]:
    found = files(table, content)
    assert all(file.file_path.endswith(f".{file.file_format}") for file in found)
    return sorted({file.file_format for file in found})


@pytest.mark.parametrize("version", [1, 2, 3])
class TestEveryOperation:
    """Whatever writes rows writes them as Avro, in a job and in this process; the rows are those of a Parquet table."""

    @pytest.mark.costly
    def test_in_a_job(self, tmp_path, version):
        table = make(tmp_path, version)
        append(job_work(table), AppendRequest(rows=source(tmp_path, range(20))))
        assert formats(table) == ["avro"]
        delete(job_work(table), DeleteRequest(predicate="id in (3, 4)", mode="copy-on-write"))
        overwrite(job_work(table), OverwriteRequest(rows=source(tmp_path, [6]), overwrite_filter="id in (6, 8)"))
        append(job_work(table), AppendRequest(rows=source(tmp_path, range(20, 24))))
        result = compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        assert (result.outcome, result.added_data_files) == ("committed", 2)
        assert formats(table) == ["avro"]
        assert ids(table) == [n for n in range(24) if n not in (3, 4, 8)]

    @pytest.mark.costly
    def test_in_this_process(self, tmp_path, version):
        table = make(tmp_path, version)
        table.append(rows(range(20)))
        table.delete("id in (3, 4)", mode="copy-on-write")
        table.overwrite(rows([6]), overwrite_filter="id in (6, 8)")
        table.dynamic_partition_overwrite(rows([1]))
        assert formats(table) == ["avro"]
        assert ids(table) == [0, 1, 2, 6, 10, 12, 14, 16, 18]

    @pytest.mark.parametrize(
        "request_", [{"strategy": "sort", "sort_by": ("id desc",)}, {"strategy": "zorder", "sort_by": ("id",)}]
    )
    def test_sorted_compactions(self, tmp_path, version, request_):
        table = make(tmp_path, version)
        for start in (0, 30):
            table.append(rows(range(start, start + 30)))
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}, **request_))
        assert formats(table) == ["avro"]
        assert ids(table) == list(range(60))
        if request_["strategy"] == "sort":
            found = table.scan("part = 'a'").to_arrow()["id"].to_pylist()
            assert found == sorted(found, reverse=True)

    def test_sorted_writes(self, tmp_path, version):
        table = make(tmp_path, version, sort_by=["id desc"])
        table.append(rows([1, 5, 3, 2]))
        append(job_work(table), AppendRequest(rows=source(tmp_path, [9, 7, 11])))
        assert {file.sort_order_id for file in files(table)} == {1}
        for part in ([5, 3, 1], [11, 9, 7]):
            found = table.scan(f"id in ({', '.join(map(str, part))})").to_arrow()["id"].to_pylist()
            assert found == part

    def test_files_are_pruned_by_their_statistics(self, tmp_path, version):
        table = make(tmp_path, version)
        for start in (0, 100):
            table.append(rows(range(start, start + 10)))
        assert len(table.scan("id = 109").plan_files()) == 1
        # A delete that statistics prove opens no file.
        assert table.delete("id >= 100").deleted_data_files == 2


class TestRowLineage:
    """Rows of version 3 keep their ids when their Avro files are rewritten."""

    @pytest.mark.costly
    def test_over_a_delete_and_a_compaction(self, tmp_path):
        table = make(tmp_path, 3)
        for start in (0, 10):
            table.append(rows(range(start, start + 10)))
        before = lineage(table, "id <> 3")
        assert None not in before["_row_id"].to_pylist()
        table.delete("id = 3", mode="copy-on-write")
        assert lineage(table).equals(before)
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        assert lineage(table.refresh()).equals(before)
        assert formats(table) == ["avro"]


class TestDeleteFiles:
    """Position delete files have the format that the table asks for; by default that of its data files."""

    @pytest.mark.parametrize(
        ("data", "deletes", "expected"),
        [("avro", None, "avro"), ("parquet", "avro", "avro"), ("avro", "parquet", "parquet"), ("orc", None, "parquet")],
    )
    def test_format(self, tmp_path, data, deletes, expected):
        table = make(tmp_path, 2, "parquet")
        table.append(rows(range(40)))
        chosen = {FORMAT: data} | ({} if deletes is None else {DELETE_FORMAT: deletes})
        table.alter([{"set_properties": chosen}])
        table.refresh()
        table.delete("id in (3, 4, 39)", mode="merge-on-read")
        delete(job_work(table), DeleteRequest(predicate="id = 5", mode="merge-on-read"))
        assert formats(table, content=1) == [expected]
        assert ids(table) == [n for n in range(40) if n not in (3, 4, 5, 39)]

    def test_the_file(self, tmp_path):
        table = make(tmp_path, 2, properties={"write.delete.avro.compression-codec": "zstd"})
        table.append(rows(range(0, 40, 2)))
        table.delete("id in (2, 8)", mode="merge-on-read")
        (found,) = files(table, content=1)
        header = read_header(table.io.read(found.file_path))
        assert (header.codec, header.metadata["delete-type"]) == ("zstandard", b"position")
        (data,) = files(table)
        assert (found.record_count, found.referenced_data_file) == (2, data.file_path)
        assert found.lower_bounds[2147483546] == data.file_path.encode()
        assert found.file_size_in_bytes == len(table.io.read(found.file_path))

    def test_version_3_has_vectors(self, tmp_path):
        table = make(tmp_path, 3)
        table.append(rows(range(20)))
        table.delete("id in (3, 4)", mode="merge-on-read")
        assert {file.file_format for file in files(table, content=1)} == {"puffin"}
        assert ids(table) == [n for n in range(20) if n not in (3, 4)]


class TestSeveralFormats:
    """Files of all three formats in one table are read, deleted from, and compacted into the table's own format."""

    def mixed(self, folder: Path, version: int, file_format: str) -> Table:
        properties = {"format-version": str(version), FORMAT: file_format}
        table = new_table(folder, schema={"id": "long", "name": "string"}, properties=properties)
        for number, kind in enumerate(("orc", "avro", "parquet")):
            found = [{"id": n, "name": kind} for n in range(10 * number, 10 * number + 10)]
            path = folder / "db" / "t" / "data" / f"theirs.{kind}"
            path.parent.mkdir(exist_ok=True)
            write_data_file(path, kind, table.schema(), found)
            add_file(table, path, record_count=10, file_format=kind)
        for number, kind in enumerate(("avro", "parquet"), start=3):
            found = pa.table({"id": range(10 * number, 10 * number + 10), "name": [kind] * 10})
            table.append(found, write_format=kind)
        return table

    @pytest.mark.costly
    @pytest.mark.parametrize("version", [1, 2, 3])
    @pytest.mark.parametrize("file_format", ["parquet", "avro"])
    def test_they_live_together(self, tmp_path, version, file_format):
        table = self.mixed(tmp_path, version, file_format)
        assert sorted(file.file_format for file in files(table)) == ["avro", "avro", "orc", "parquet", "parquet"]
        assert ids(table) == list(range(50))
        mode = "copy-on-write" if version == 1 else "merge-on-read"
        table.delete("id in (3, 13, 23, 33, 43)", mode=mode)
        table.delete("id in (4, 14, 24, 34, 44)", mode="copy-on-write")
        left = [n for n in range(50) if n % 10 not in (3, 4)]
        assert ids(table) == left
        assert formats(table) == [file_format]  # copy-on-write has rewritten all of them
        table.overwrite(pa.table({"id": [100], "name": ["new"]}), overwrite_filter="id < 10", check_filter=False)
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        assert formats(table.refresh()) == [file_format]
        assert ids(table) == [*(n for n in left if n >= 10), 100]

    @pytest.mark.costly
    @pytest.mark.parametrize("asked", ["parquet", "avro"])
    def test_a_compaction_to_the_format_of_the_table_or_to_another(self, tmp_path, asked):
        table = self.mixed(tmp_path, 2, "orc")
        with pytest.raises(UnsupportedError, match="set write_format='parquet' to write Parquet files into the table"):
            compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        assert not staged(table)
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}, write_format=asked))
        assert formats(table.refresh()) == [asked]
        assert ids(table) == list(range(50))


class TestWriteFormat:
    """The argument takes precedence over the property, in each operation; with it a table of ORC files gets Parquet."""

    def test_a_table_with_orc_files(self, tmp_path):
        table = make(tmp_path, 2, "orc")
        refused = pytest.raises(
            UnsupportedError,
            match=r"property write.format.default is 'orc': data files are written as parquet or avro only; set "
            r"write_format='parquet' to write Parquet files into the table, or set the property to one of these",
        )
        with refused:
            table.append(rows([1]))
        table.append(rows(range(10)), write_format="parquet")
        with refused:
            table.delete("id = 3", mode="copy-on-write")
        table.delete("id = 3", mode="copy-on-write", write_format="PARQUET")
        with refused:
            table.overwrite(rows([4]), overwrite_filter="id = 4")
        table.overwrite(rows([4]), overwrite_filter="id = 4", write_format="parquet")
        table.dynamic_partition_overwrite(rows([1]), write_format="avro")
        assert ids(table) == [0, 1, 2, 4, 6, 8]
        assert formats(table) == ["avro", "parquet"]

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize(
        "change",
        [
            lambda table, **more: table.update({"part": "'c'"}, "id = 3", **more),
            lambda table, **more: table.upsert(rows([3, 40]), ["id"], **more),
            lambda table, **more: table.merge(rows([3, 40]), ["id"], "when not matched then insert *", **more),
        ],
        ids=["update", "upsert", "merge"],
    )
    def test_updates_and_merges_take_what_they_advise(self, tmp_path, change, mode):
        table = make(tmp_path, 2, "orc")
        table.append(rows([3]), write_format="avro")
        with pytest.raises(UnsupportedError, match="set write_format='parquet'"):
            change(table, mode=mode)
        assert change(table, mode=mode, write_format="parquet").added_data_files
        assert "parquet" in formats(table.refresh())

    @pytest.mark.costly
    def test_files_that_are_written_anew_when_they_are_added(self, tmp_path):
        """There is no such argument, and so no such advice."""
        table = make(tmp_path, 2, "orc")
        path = tmp_path / "unfit.parquet"
        pq.write_table(
            pa.table({"id": pa.array([1], pa.uint32()), "part": ["a"], "at": pa.array([1], pa.timestamp("us", "UTC"))}),
            path,
        )
        request = AddFilesRequest(files=[path.as_uri()], rewrite_unfit=True)
        with pytest.raises(UnsupportedError, match="as parquet or avro only; set the property"):
            add_files(job_work(table), request)

    @pytest.mark.costly
    def test_in_jobs(self, tmp_path):
        table = make(tmp_path, 2, "orc")
        work = lambda: job_work(table.refresh())  # noqa: E731
        with pytest.raises(UnsupportedError, match="set write_format='parquet'"):
            append(work(), AppendRequest(rows=source(tmp_path, range(10))))
        append(work(), AppendRequest(rows=source(tmp_path, range(10)), write_format="parquet"))
        request = OverwriteRequest(rows=source(tmp_path, [4]), overwrite_filter="id = 4", write_format="parquet")
        overwrite(work(), request)
        delete(work(), DeleteRequest(predicate="id = 3", mode="copy-on-write", write_format="parquet"))
        assert ids(table.refresh()) == [n for n in range(10) if n != 3]
        assert formats(table) == ["parquet"]

    @pytest.mark.parametrize("asked", ["orc", "csv", ""])
    def test_another_one_is_refused_before_anything_is_done(self, tmp_path, asked):
        table = make(tmp_path)
        expected = pytest.raises(InvalidInputError, match=f"write_format is '{asked}', expected one of parquet, avro")
        for request in (
            lambda: AppendRequest(rows=rows([1]), write_format=asked),
            lambda: OverwriteRequest(rows=rows([1]), replace="table", write_format=asked),
            lambda: DeleteRequest(predicate="id = 1", write_format=asked),
            lambda: CompactRequest(write_format=asked),
        ):
            with expected:
                request()
        for call in (
            lambda: table.append(rows([1]), write_format=asked),
            lambda: table.upsert(rows([1]), ["id"], write_format=asked),
            lambda: table.merge(rows([1]), ["id"], "when matched then delete", write_format=asked),
            lambda: table.update({"part": "'c'"}, write_format=asked),
        ):
            with expected:
                call()

    def test_the_property_of_the_table_does_not_change(self, tmp_path):
        table = make(tmp_path)
        table.append(rows([1]), write_format="parquet")
        assert table.refresh().properties[FORMAT] == "avro"
        table.append(rows([2]))
        assert formats(table) == ["avro", "parquet"]


class TestAnyTable:
    """All types, partition transforms and versions: the rows that are read are those that were written."""

    @pytest.mark.services
    @examples(80, suppress_health_check=list(HealthCheck))
    @given(st.data(), st.sampled_from([1, 2, 3]))
    def test_rows_come_back(self, data, version):
        schema = data.draw(strategies.schemas())
        kinds = [found.type for found in schema.fields_by_id.values()]
        is_v3 = any(isinstance(kind, t.TimestampNsType | t.TimestamptzNsType) for kind in kinds)
        assume(version == 3 or not is_v3)
        found = [row for row in data.draw(strategies.columns(schema.as_struct(), max_size=8)) if row is not None]
        transforms = self.transforms(schema)
        by = data.draw(st.sampled_from([(), *transforms])) if transforms else ()
        tables = []
        for file_format in ("avro", "parquet"):
            assume(file_format == "avro" or t.FixedType(0) not in kinds)
            table = Table.create(
                MemoryCatalog(),
                "db.t",
                schema=schema,
                partition_by=by,
                properties={"format-version": str(version), FORMAT: file_format},
            )
            table.append(arrow(table.schema(), found))
            tables.append(table)
        ours, theirs = map(canonical_rows, tables)
        assert ours == theirs
        assert len(ours) == len(found)

    @staticmethod
    def transforms(schema: Schema) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for item in schema.fields:
            match item.type:
                case t.IntegerType() | t.LongType() | t.StringType() | t.DecimalType() | t.BinaryType():
                    found += [(f"bucket(4, {item.name})",), (f"truncate(2, {item.name})",), (item.name,)]
                case t.DateType() | t.TimestampType() | t.TimestamptzType():
                    found += [(f"day({item.name})",), (f"year({item.name})",)]
                case t.UUIDType() | t.BooleanType() | t.FloatType() | t.DoubleType():
                    found += [(item.name,)]
        return found


def canonical_rows(table: Table) -> list[str]:
    """Return the rows in a form that can be sorted; times are numbers, since Python's end at the years 1 and 9999."""
    chunks = table.scan().to_arrow().to_struct_array().chunks
    values = values_from_array(table.schema().as_struct(), pa.concat_arrays(chunks)) if chunks else []
    return sorted(map(repr, values))


class TestForgedResults:
    """A job that reports another file than it has written gets nothing committed."""

    @pytest.mark.parametrize(
        ("forge", "message"),
        [
            (lambda file, io: replace_bytes(io, file, b"PAR1"), "is not a avro file"),
            (lambda file, io: {**file, "file-format": "parquet"}, "a file of format parquet"),
            (lambda file, io: {**file, "file-size-in-bytes": file["file-size-in-bytes"] - 1}, "is not a avro file"),
            (lambda file, io: {**file, "file-size-in-bytes": file["file-size-in-bytes"] + 1}, "is not a avro file"),
            (lambda file, io: {**file, "file-size-in-bytes": 0}, "is not a avro file"),
        ],
        ids=["bytes", "format", "shorter", "longer", "empty"],
    )
    def test_is_refused(self, tmp_path, forge: Callable[[Any, Any], Any], message):
        table = make(tmp_path)

        def job(plan: JobPlan) -> JobResult:
            result = run_local(plan, table.io, threads=1)
            return replace(result, data_files=tuple(forge(file, table.io) for file in result.data_files))

        def load() -> WriteResult:
            return append(Work(table, run=job), AppendRequest(rows=source(tmp_path, [1, 2])))

        with pytest.raises(FormatError, match=message):
            load()
        assert table.refresh().current_snapshot() is None


def replace_bytes(io: Any, file: Any, magic: bytes) -> Any:
    path = Path(file["file-path"].removeprefix("file://"))
    path.write_bytes(magic + path.read_bytes()[len(magic) :])
    return file
