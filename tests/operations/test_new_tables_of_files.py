"""A folder of Parquet files becomes a table: a snapshot of it beside them, or the folder itself, migrated."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import AlreadyExistsError, FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.operations.existing.migration import MigrateTableRequest, migrate_table
from airflow_iceberg.operations.existing.new_table import NewTableRequest, snapshot_table
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table

KEY = OperationKey(dag_id="d", run_id="r", task_id="t", run_after_ms=1, started_ms=1)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/lake")
    made.create_namespace("db")
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of two days, of which the second has a wider column and one more."""
    folder = tmp_path / "lake" / "old"
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "at": pa.array([0, None], pa.timestamp("us"))})
    second = pa.table({"id": pa.array([3], pa.int64()), "tags": [["a"]]})
    for day, rows in (("2026-01-01", first), ("2026-01-02", second)):
        path = folder / f"ds={day}" / "n=1" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    (folder / "_SUCCESS").write_bytes(b"")
    return folder


def files(source: Path) -> list[Path]:
    return sorted(source.rglob("*.parquet"))


class TestSnapshots:
    """The table is at a location of its own, and the files stay the source's."""

    def test_schema_and_partitions_are_inferred(self, catalog, source):
        table = Table.snapshot_table(catalog, "db.t", str(source))
        columns = {field.name: (str(field.type), field.required) for field in table.schema().fields}
        assert columns == {
            **{"id": ("long", False), "at": ("timestamptz", False), "tags": ("list<string>", False)},
            **{"ds": ("date", False), "n": ("int", False)},
        }
        assert [field.name for field in table.spec().fields] == ["ds", "n"]
        rows = table.scan(selected_fields=("id", "ds", "tags")).to_arrow().sort_by("id").to_pylist()
        assert rows[2] == {"id": 3, "ds": datetime.date(2026, 1, 2), "tags": ["a"]}
        assert len(table.scan("ds = '2026-01-01'").plan_files()) == 1
        assert (table.properties["gc.enabled"], table.properties["snapshot"]) == ("false", "true")
        assert table.location.endswith("/lake/db/t")

    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            (["2026-02-30"], "string"),
            (["2026-02-28", "2026-02-29"], "string"),
            (["2024-02-29", "__HIVE_DEFAULT_PARTITION__"], "date"),
            (["0000-01-01"], "string"),
            (["2026-13-01"], "string"),
            (["1", "01", "-0"], "int"),
            (["-2147483648", "2147483647"], "int"),
            (["2147483648"], "long"),
            (["-9223372036854775808", "9223372036854775807"], "long"),
            (["9223372036854775808"], "string"),
            (["1", "2026-01-01"], "string"),
            (["NaN"], "string"),
            (["1.5"], "string"),
            (["2026-01-01 10:00:00"], "string"),
            (["__HIVE_DEFAULT_PARTITION__"], "string"),
        ],
    )
    def test_the_type_of_a_folders_values_is_one_that_has_all_of_them(self, catalog, tmp_path, texts, expected):
        for number, text in enumerate(texts):
            folder = tmp_path / "lake" / "in" / f"v={text}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"id": [number]}), folder / "0.parquet")
        table = Table.snapshot_table(catalog, "db.t", str(tmp_path / "lake" / "in"))
        assert str(table.schema().fields[-1].type) == expected
        assert table.scan().to_arrow().num_rows == len(texts)

    def test_nothing_of_the_source_is_deleted(self, catalog, source):
        table = Table.snapshot_table(catalog, "db.t", str(source))
        table.delete("true")
        with pytest.raises(InvalidInputError, match=r"gc\.enabled"):
            expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))
        assert len(files(source)) == 2

    def test_a_schema_and_a_spec_of_ones_own(self, catalog, source):
        columns = {"id": "long", "ds": "string"}
        table = Table.snapshot_table(catalog, "db.t", str(source), schema=columns, partition_by=["ds"])
        assert table.scan("ds = '2026-01-02'").to_arrow().to_pylist() == [{"id": 3, "ds": "2026-01-02"}]

    def test_not_within_the_source(self, catalog, source):
        with pytest.raises(InvalidInputError, match="is in the folder of its source"):
            Table.snapshot_table(catalog, "db.t", str(source), location=f"file://{source}/new")

    @pytest.mark.parametrize("above", ["", "/"])
    def test_nor_above_the_source(self, catalog, source, above):
        # The next search for orphan files of the new table would delete what is written into the source meanwhile.
        with pytest.raises(InvalidInputError, match="has the folder of its source in it"):
            Table.snapshot_table(catalog, "db.t", str(source), location=f"file://{source.parent}{above}")
        assert not catalog.table_exists(TableId.of("db.t"))

    @pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
    def test_nor_do_its_properties_name_such_a_place(self, catalog, source, name):
        for place in (source, source.parent, source / "new"):
            with pytest.raises(InvalidInputError, match=f"property {name} of the new table, file://"):
                Table.snapshot_table(catalog, "db.t", str(source), properties={name: f"file://{place}/"})


class TestMigration:
    """The folder is the table's location, and the table owns the files."""

    @pytest.mark.costly
    def test_the_table_is_where_the_files_are(self, catalog, source):
        table = Table.migrate_table(catalog, "db.t", str(source))
        assert (table.location, table.properties["migrated"]) == (f"file://{source}", "true")
        table.append(pa.table({"id": pa.array([9], pa.int64()), "ds": ["2026-01-02"], "n": pa.array([1], pa.int32())}))
        table.delete("ds = '2026-01-01'")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [3, 9]
        expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62, retain_last=1))
        assert not (source / "ds=2026-01-01" / "n=1" / "part-0.parquet").exists(), "it is the table's own"
        assert (source / "ds=2026-01-02" / "n=1" / "part-0.parquet").exists()

    def test_a_creation_that_was_asked_for_twice_since_the_answer_was_lost(self, catalog, source, monkeypatch):
        """The second answer is that the table exists: it is this one, and keeps its manifests."""
        create = type(catalog).create

        def twice(*arguments: object, **more: object) -> None:
            create(*arguments, **more)
            raise AlreadyExistsError("table db.t exists")

        monkeypatch.setattr(type(catalog), "create", twice)
        request = MigrateTableRequest(source=str(source))
        _, result = migrate_table(catalog, TableId.parse("db.t"), request, operation_key=KEY)
        assert result.outcome == "committed"
        assert sorted(Table.load(catalog, "db.t").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


class TestBadSources:
    """One clear error, and no table is left."""

    def refused(self, catalog, source, why, kind=InvalidInputError, **options):
        for make in (Table.snapshot_table, Table.migrate_table):
            with pytest.raises(kind, match=why):
                make(catalog, "db.t", str(source), **options)
            assert not catalog.table_exists("db.t")

    def test_sources(self, catalog, source, tmp_path):
        self.refused(catalog, tmp_path / "lake" / "no", "there are no files below", NotFoundError)
        self.refused(
            catalog,
            source,
            "column 'id' is int32 in the file, expected string",
            schema={"id": "string"},
            partition_by=[],
        )
        (source / "ds=2026-01-03").mkdir()
        broken = source / "ds=2026-01-03" / "part-0.parquet"
        pq.write_table(pa.table({"id": [1]}), broken)
        self.refused(catalog, source, "expected the same for all")
        broken.unlink()
        (source / "ds=2026-01-02" / "n=1" / "bad.parquet").write_bytes(b"garbage" * 10)
        self.refused(catalog, source, "cannot read a Parquet file", FormatError)

    def test_columns_that_do_not_fit_together(self, catalog, source):
        pq.write_table(pa.table({"id": ["x"]}), source / "ds=2026-01-02" / "n=1" / "other.parquet")
        self.refused(catalog, source, "do not fit together")

    def test_outside_of_what_the_connection_trusts(self, catalog, source, tmp_path):
        source.rename(tmp_path / "elsewhere")
        self.refused(catalog, tmp_path / "elsewhere", "allowed-locations")

    def test_a_name_that_is_taken(self, catalog, source):
        Table.create(catalog, "db.t", schema={"id": "long"})
        with pytest.raises(AlreadyExistsError, match=r"table db\.t exists already"):
            Table.snapshot_table(catalog, "db.t", str(source))


def test_a_retry_finishes_what_an_earlier_try_began(catalog, source, monkeypatch):
    """The table that an earlier try has created is known by its property, and gets the files once."""
    request, name = NewTableRequest(source=str(source)), TableId.parse("db.t")
    module = "airflow_iceberg.operations.existing.new_table.add_files"
    with monkeypatch.context() as patch:
        patch.setattr(module, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            snapshot_table(catalog, name, request, operation_key=KEY)
    for outcome in ("committed", "found"):
        _, result = snapshot_table(catalog, name, request, operation_key=KEY)
        assert (result.outcome, result.added_data_files) == (outcome, 2)
    with pytest.raises(AlreadyExistsError):
        snapshot_table(catalog, name, request, operation_key=dataclasses.replace(KEY, task_id="other"))
