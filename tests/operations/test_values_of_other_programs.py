"""Values that are none: refused wherever rows enter, and carried where a table has them already."""

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.table import Table
from tests.support.builders import add_file, ids, job_work, new_table

COW, MOR = "copy-on-write", "merge-on-read"
BAD = b"\xff\xfe"
HOUR = 3_600_000_000
KINDS = {
    "string": "string",
    "long string": "string",
    "time": "time",
    "decimal": "decimal(5, 2)",
    "map": "map<string, long>",
    "nested": "struct<l: list<string>>",
}
REASONS = {"time": "is not in a day", "decimal": "has more digits", "map": "has the key 'a' twice"}


def column(kind: str) -> pa.Array:
    """Return three values, the second of which is none."""
    match kind:
        case "string":
            return pa.array([b"a", BAD, b"c"]).view(pa.string())
        case "long string":
            return pa.array([b"a", BAD * 4000, b"c"]).view(pa.string())
        case "time":
            return pa.array([HOUR, 25 * HOUR, 2 * HOUR]).view(pa.time64("us"))
        case "decimal":
            wide = pa.array([Decimal("1.00"), Decimal("1000.00"), Decimal("3.00")], pa.decimal128(38, 2))
            return wide.view(pa.decimal128(5, 2))
        case "map":
            return pa.array([[("a", 1)], [("a", 1), ("a", 2)], []], pa.map_(pa.string(), pa.int64()))
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], column("string"))
    return pa.StructArray.from_arrays([lists], names=["l"])


def rows(kind: str) -> pa.Table:
    return pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": column(kind)})


def write_theirs(table: Table, kind: str, path: Path) -> None:
    """Add a data file as another program may have written it."""
    pq.write_table(rows(kind).cast(schema_to_arrow(table.schema())), path, store_schema=False)
    add_file(table, path, record_count=3)


def source_file(kind: str, file_format: str, folder: Path) -> Path:
    path = folder / f"a.{file_format}"
    if file_format == "parquet":
        pq.write_table(rows(kind), path, store_schema=False)
    else:
        orc.write_table(rows(kind), path)
    return path


@pytest.mark.parametrize("kind", KINDS)
class TestWhereRowsEnter:
    """Nothing is committed, and the message names column, source and row."""

    @pytest.fixture
    def table(self, tmp_path: Path, kind: str) -> Table:
        return new_table(tmp_path, schema={"id": "long", "v": KINDS[kind]})

    def refused(self, table: Table, kind: str, change: Any, source: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            change()
        path = "v.l.element" if kind == "nested" else "v"
        text = str(caught.value)
        assert text.startswith(f"column '{path}', row 2 of ")
        assert source in text
        assert REASONS.get(kind, "is not UTF-8") in text
        assert not Table.load(table.catalog, "db.t").metadata.snapshots

    def test_arrow_rows(self, table, kind):
        for give in (rows(kind), rows(kind).to_reader(), rows(kind).to_batches()[0]):
            self.refused(table, kind, lambda give=give: table.append(give), "the Arrow rows")
        self.refused(table, kind, lambda: table.overwrite(rows(kind)), "the Arrow rows")

    @pytest.mark.parametrize("file_format", ["parquet", "orc"])
    def test_files(self, table, kind, file_format, tmp_path):
        if kind == "time" and file_format == "orc":
            pytest.skip("ORC has no time")
        path = source_file(kind, file_format, tmp_path)
        source = Source.from_files([str(path)])
        work = job_work(table)
        self.refused(table, kind, lambda: append(work, AppendRequest(rows=source)), path.name)
        self.refused(table, kind, lambda: overwrite(work, OverwriteRequest(rows=source, replace="table")), path.name)

    def test_merges(self, table, kind, tmp_path):
        path = source_file(kind, "parquet", tmp_path)
        work = job_work(table)
        for source, name in ((Source.from_files([str(path)]), path.name), (rows(kind), "the Arrow rows")):
            request = MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb")
            self.refused(table, kind, lambda request=request: merge(work, request), name)

    def test_updates(self, table, kind, tmp_path):
        """A row gets the value of another row, which the table has from another program."""
        path = tmp_path / "theirs.parquet"
        write_theirs(table, kind, path)
        table = Table.load(table.catalog, "db.t")
        for mode in (COW, MOR):
            request = UpdateRequest(set={"v": "v"}, where="id = 2", mode=mode, dialect="duckdb")
            with pytest.raises(IcebergError) as caught:
                update(job_work(table), request)
            assert REASONS.get(kind, "is not UTF-8") in str(caught.value) or "duplicate key" in str(caught.value)


class TestColumnsOfTheSourceAlone:
    """A merge's SQL reads columns that the table does not have: they are checked, too."""

    @pytest.mark.parametrize("in_file", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_they_are_refused(self, tmp_path, kind, in_file):
        table = new_table(tmp_path)
        given: Any = rows(kind)
        if in_file:
            given = Source.from_files([str(source_file(kind, "parquet", tmp_path))])
        clauses = "when not matched and source.v is not null then insert (id) values (source.id)"
        with pytest.raises(
            InvalidInputError, match=r"column 'v(.l.element)?', row 2 of (the Arrow rows|.*a\.parquet): "
        ):
            merge(job_work(table), MergeRequest(rows=given, on=["id"], clauses=clauses, dialect="duckdb"))

    def test_a_decimal_is_not_cut_on_its_way(self, tmp_path):
        """Rows of the process pass through a Parquet file, which would keep the lower bytes of a decimal."""
        table = new_table(tmp_path, schema={"id": "long", "v": "decimal(5, 2)"})
        wide = pa.array([Decimal(2**24 + 5).scaleb(-2)], pa.decimal128(38, 2)).view(pa.decimal128(5, 2))
        given = pa.table({"id": pa.array([1], pa.int64()), "v": wide})
        with pytest.raises(InvalidInputError, match=r"the decimal 167772\.21 has more digits"):
            merge(job_work(table), MergeRequest(rows=given, on=["id"], upsert=True, dialect="duckdb"))


class TestTextOfPythonAndJson:
    """Half a surrogate pair is a text for Python and JSON, but not for a table."""

    def test_a_default(self, tmp_path):
        table = new_table(tmp_path, properties={"format-version": "3"})
        with pytest.raises(InvalidInputError, match=r"default of column 'c': cannot take '.ud800' as a value of type"):
            table.alter([{"add_column": {"name": "c", "type": "string", "default": "\ud800"}}])

    def test_a_name(self, tmp_path):
        table = new_table(tmp_path)
        with pytest.raises(InvalidInputError, match=r"name of a column contains half of a surrogate pair \(U\+D800"):
            table.alter([{"add_column": {"name": "\ud800", "type": "string"}}])
        assert Table.load(table.catalog, "db.t").schema().fields[-1].name == "id"

    def test_a_predicate(self, tmp_path):
        table = new_table(tmp_path, schema={"s": "string"})
        with pytest.raises(InvalidInputError, match="cannot compare column 's'"):
            table.overwrite(pa.table({"s": ["a"]}), "s = '\ud800'")


class TestPartitionValues:
    @pytest.mark.parametrize("transform", ["truncate(4, v)", "v"])
    def test_a_carried_text_can_be_no_partition_value(self, tmp_path, transform):
        table = new_table(tmp_path, schema={"id": "long", "v": "string"})
        write_theirs(table, "string", tmp_path / "theirs.parquet")
        table.alter([{"add_partition_field": transform}])
        with pytest.raises(IcebergError, match="a row has a text that is not UTF-8, and it can be no partition value"):
            rewrite_all(Table.load(table.catalog, "db.t"))


# -- carried rows ------------------------------------------------------------------------------------------------------


def rewrite_all(table: Table, **options: Any) -> None:
    compact(job_work(table), CompactRequest(options={"rewrite-all": "true"}, **options))


def upsert(table: Table, mode: str) -> None:
    new = pa.table({"id": pa.array([3, 4], pa.int64())})
    clauses = (
        "when matched then update set id = source.id + 100 when not matched then insert (id) values (source.id + 100)"
    )
    merge(job_work(table), MergeRequest(rows=new, on=["id"], clauses=clauses, mode=mode, dialect="duckdb"))


CHANGES: dict[str, tuple[Any, list[int]]] = {
    "delete": (lambda table, mode: delete(job_work(table), DeleteRequest(predicate="id = 1", mode=mode)), [2, 3]),
    "erase": (lambda table, mode: delete(job_work(table), DeleteRequest(predicate="id = 2", mode=mode)), [1, 3]),
    "update another": (
        lambda table, mode: update(
            job_work(table), UpdateRequest(set={"id": "id + 100"}, where="id = 1", mode=mode, dialect="duckdb")
        ),
        [2, 3, 101],
    ),
    "update another column": (
        lambda table, mode: update(
            job_work(table), UpdateRequest(set={"id": "id + 100"}, where="id = 2", mode=mode, dialect="duckdb")
        ),
        [1, 3, 102],
    ),
    "mend": (
        lambda table, mode: update(
            job_work(table), UpdateRequest(set={"v": "null"}, where="id = 2", mode=mode, dialect="duckdb")
        ),
        [1, 2, 3],
    ),
    "merge": (upsert, [1, 2, 103, 104]),
    "compact": (lambda table, mode: rewrite_all(table), [1, 2, 3]),
    "sort": (lambda table, mode: rewrite_all(table, strategy="sort", sort_by=("v", "id")), [1, 2, 3]),
    "sort by id": (lambda table, mode: rewrite_all(table, strategy="sort", sort_by=("id desc",)), [1, 2, 3]),
    "zorder": (lambda table, mode: rewrite_all(table, strategy="zorder", sort_by=("id", "v")), [1, 2, 3]),
    "to avro": (lambda table, mode: rewrite_all(table, write_format="avro"), [1, 2, 3]),
}
NOT_SORTED = {"map": ("sort", "zorder"), "nested": ("sort", "zorder")}


def stored(table: Table) -> dict[int, bytes | None]:
    """Return the bytes of the column by id, whatever they are."""
    found = table.scan().to_arrow()
    plain = {"string": pa.binary(), "time64[us]": pa.int64(), "decimal128(5, 2)": pa.decimal128(38, 2)}
    kind = found.column("v").type
    values = found.column("v")
    if str(kind) in plain:
        values = pa.chunked_array([chunk.view(plain[str(kind)]) for chunk in values.chunks])
    elif pa.types.is_struct(kind):
        values = pa.chunked_array([chunk.view(pa.struct({"l": pa.list_(pa.binary())})) for chunk in values.chunks])
    return dict(zip(found.column("id").to_pylist(), values.to_pylist(), strict=True))


@pytest.mark.sample(16)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize("mode", [COW, MOR])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_has_such_rows_can_be_changed(kind, change, mode, file_format, version, tmp_path):
    """Carried rows are not checked: their bytes are those that they were."""
    if change in NOT_SORTED.get(kind, ()) or (version == 1 and mode == MOR):
        return
    properties = {"format-version": str(version), "write.format.default": file_format}
    table = new_table(tmp_path, schema={"id": "long", "v": KINDS[kind]}, properties=properties)
    write_theirs(table, kind, tmp_path / "theirs.parquet")
    if file_format == "avro":
        rewrite_all(Table.load(table.catalog, "db.t"))
    before = stored(Table.load(table.catalog, "db.t"))
    run, expected = CHANGES[change]
    run(Table.load(table.catalog, "db.t"), mode)
    table = Table.load(table.catalog, "db.t")
    assert ids(table) == expected
    after = stored(table)
    for key, value in after.items():
        origin = key if key in before else key - 100
        if change == "mend" and key == 2:
            assert value is None
        elif origin in before:
            assert value == before[origin]


class TestSourcesInAvro:
    def test_a_time_and_a_text(self, tmp_path):
        """Their reader looks itself: an error that names the file."""
        table = new_table(tmp_path, schema={"id": "long", "v": "string"})
        record = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
        as_bytes = {**record, "fields": [*record["fields"], {"name": "v", "type": "bytes"}]}
        as_text = {**record, "fields": [*record["fields"], {"name": "v", "type": "string"}]}
        bodies = []
        for schema, found in ((as_text, []), (as_bytes, [{"id": 1, "v": BAD}])):
            sink = io.BytesIO()
            fastavro.writer(sink, json.loads(json.dumps(schema)), found, sync_marker=b"x" * 16)
            bodies.append(sink.getvalue())
        head, body = bodies[0], bodies[1][bodies[1].index(b"x" * 16) + 16 :]
        (tmp_path / "a.avro").write_bytes(head + body)
        with pytest.raises(IcebergError, match=r"a\.avro"):
            append(job_work(table), AppendRequest(rows=Source.from_files([str(tmp_path / "a.avro")])))
