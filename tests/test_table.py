"""What users touch: create, load, append, scan and inspect a table without Airflow."""

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import AlreadyExistsError, FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.table import Table
from tests.support import golden
from tests.support.append_steps import plan_append
from tests.support.builders import new_catalog

SCHEMA = {"id": "long not null", "ts": "timestamptz", "amount": "decimal(9,2)", "tags": "list<string>"}


def orders(first: int, count: int, *, day: int = 1) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([dt.datetime(2026, 1, day, i % 24, tzinfo=dt.UTC) for i in ids], pa.timestamp("us", "UTC")),
            "amount": pa.array([decimal.Decimal(i).scaleb(-2) for i in ids], pa.decimal128(9, 2)),
            "tags": pa.array([["a", None], [], None, ["b"]][i % 4] for i in ids),
        }
    )


@pytest.fixture(params=["hadoop", "sql"])
def catalog(request, tmp_path):
    uri = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}"} if request.param == "sql" else {}
    catalog = load_catalog("prod", type=request.param, warehouse=(tmp_path / "wh").as_uri(), **uri)
    catalog.create_namespace("sales")
    return catalog


@pytest.fixture
def table(catalog):
    return Table.create(catalog, "sales.orders", schema=SCHEMA, partition_by=["day(ts)"])


class TestCreating:
    """A table is described as people write it: columns, partitioning, sorting, properties."""

    def test_a_new_table_has_what_was_asked_for(self, catalog):
        table = Table.create(
            catalog,
            "sales.orders",
            schema=SCHEMA,
            partition_by=["day(ts)", "bucket(16, id)"],
            sort_by=["id desc"],
            properties={"owner": "finance"},
        )
        assert [field.name for field in table.schema().fields] == list(SCHEMA)
        assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
            ("ts_day", "day"),
            ("id_bucket", "bucket[16]"),
        ]
        assert table.properties["owner"] == "finance"
        assert table.metadata.format_version == 2
        assert table.current_snapshot() is None
        assert Table.load(catalog, "sales.orders").metadata == table.metadata

    def test_a_taken_name_is_refused_unless_that_is_fine(self, catalog, table):
        with pytest.raises(AlreadyExistsError):
            Table.create(catalog, "sales.orders", schema=SCHEMA)
        again = Table.create(catalog, "sales.orders", schema={"x": "int"}, if_not_exists=True)
        assert again.metadata.table_uuid == table.metadata.table_uuid

    @pytest.mark.parametrize(("term", "named"), [("day(when)", "when"), ("fortnight(ts)", "fortnight")])
    def test_an_unknown_column_or_transform_in_the_partitioning_is_named(self, catalog, term, named):
        with pytest.raises((NotFoundError, InvalidInputError), match=named):
            Table.create(catalog, "sales.x", schema=SCHEMA, partition_by=[term])
        assert not catalog.table_exists("sales.x")

    @pytest.mark.parametrize("version", ["4", "5"])
    def test_a_format_version_of_the_future_is_refused(self, catalog, version):
        with pytest.raises((UnsupportedError, InvalidInputError), match=version):
            Table.create(catalog, "sales.x", schema=SCHEMA, properties={"format-version": version})
        assert not catalog.table_exists("sales.x")


class TestAppending:
    """An append is one snapshot; rows that do not fit are refused before anything is committed."""

    def test_rows_come_back_as_they_were(self, table):
        rows = orders(0, 100)
        result = table.append(rows)
        assert (result.outcome, result.added_records, result.operation) == ("committed", 100, "append")
        read = table.scan().to_arrow().sort_by("id")
        assert read.cast(rows.schema).equals(rows)

    def test_a_second_append_follows_the_first(self, catalog, table):
        first = table.append(orders(0, 10))
        second = table.append(orders(10, 10, day=2))
        head = Table.load(catalog, "sales.orders").current_snapshot()
        assert head.snapshot_id == second.snapshot_id
        assert head.parent_snapshot_id == first.snapshot_id
        assert head.summary["total-records"] == "20"

    def test_a_table_object_that_is_behind_still_appends(self, catalog, table):
        other = Table.load(catalog, "sales.orders")
        table.append(orders(0, 10))
        other.append(orders(10, 10))
        assert table.refresh().scan().count() == 20

    def test_no_rows_commit_nothing(self, table):
        before = table.metadata_location
        result = table.append(orders(0, 0))
        assert (result.outcome, result.snapshot_id) == ("nothing", None)
        assert table.refresh().metadata_location == before

    @pytest.mark.parametrize(
        ("rows", "named"),
        [
            (orders(0, 3).append_column("surprise", pa.array([1, 2, 3])), "surprise"),
            (orders(0, 3).set_column(0, "id", pa.array([1, None, 3], pa.int64())), "'id'"),
        ],
        ids=["extra column", "null in a required column"],
    )
    def test_rows_that_do_not_fit_are_named_and_nothing_is_committed(self, table, rows, named):
        before = table.metadata_location
        with pytest.raises(InvalidInputError, match=named):
            table.append(rows)
        assert table.refresh().metadata_location == before
        assert list(table.io.list(f"{table.location}/data")) == []

    def test_a_branch_that_is_not_there_is_named(self, table):
        with pytest.raises(NotFoundError, match="etl"):
            table.append(orders(0, 3), branch="etl")

    def test_own_snapshot_properties_are_kept(self, table):
        table.append(orders(0, 3), snapshot_properties={"ticket": "OPS-7"})
        assert table.current_snapshot().summary["ticket"] == "OPS-7"


class TestScanning:
    """A scan returns exactly the rows for which the predicate is true, at one point of the history."""

    @pytest.fixture
    def loaded(self, table):
        for day in (1, 2, 3):
            table.append(orders(day * 100, 10, day=day))
        return table

    def test_a_predicate_on_the_partition_opens_only_its_files(self, loaded):
        scan = loaded.scan("ts >= '2026-01-02' and ts < '2026-01-03'")
        assert len(scan.plan_files()) == 1
        assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(200, 210))

    def test_only_selected_columns_come_in_the_tables_order(self, loaded):
        read = loaded.scan("id = 305", selected_fields=("amount", "id")).to_arrow()
        assert read.to_pylist() == [{"id": 305, "amount": decimal.Decimal("3.05")}]

    def test_a_filter_column_does_not_have_to_be_selected(self, loaded):
        assert loaded.scan("id = 305", selected_fields=("amount",)).to_arrow().num_rows == 1

    def test_an_older_snapshot_has_the_older_rows(self, loaded):
        first = loaded.snapshots()[0].snapshot_id
        assert loaded.scan(snapshot_id=first).count() == 10

    def test_a_point_in_time_has_what_was_current_then(self, loaded):
        second = loaded.snapshots()[1]
        assert loaded.scan(as_of_ms=second.timestamp_ms).to_arrow().num_rows in (20, 30)
        with pytest.raises(NotFoundError):
            loaded.scan(as_of_ms=1)

    def test_two_points_in_time_are_refused(self, loaded):
        with pytest.raises(InvalidInputError, match="one point"):
            loaded.scan(snapshot_id=1, ref="main")

    def test_a_limit_ends_the_read(self, loaded):
        assert loaded.scan(limit=13).to_arrow().num_rows == 13
        assert loaded.scan(limit=0).to_arrow().num_rows == 0

    def test_a_stream_gives_the_same_rows(self, loaded):
        streamed = loaded.scan("id < 205").to_arrow_batch_reader().read_all()
        assert sorted(streamed["id"].to_pylist()) == [*range(100, 110), *range(200, 205)]

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            ({"row_filter": "nothing > 1"}, "nothing"),
            ({"selected_fields": ("nothing",)}, "nothing"),
            ({"ref": "nothing"}, "nothing"),
            ({"snapshot_id": 7}, "snapshot 7"),
        ],
    )
    def test_a_name_that_is_not_there_is_named(self, loaded, options, word):
        with pytest.raises(NotFoundError, match=word):
            loaded.scan(**options)

    def test_a_table_without_rows_reads_as_no_rows(self, table):
        read = table.scan().to_arrow()
        assert read.num_rows == 0
        assert read.column_names == list(SCHEMA)

    def test_a_metadata_file_alone_is_enough_to_read(self, loaded):
        opened = Table.from_metadata(loaded.metadata_location)
        assert opened.scan().count() == 30
        files = sorted(status.location for status in opened.io.list(opened.location))
        with pytest.raises(UnsupportedError, match="read-only"):
            opened.append(orders(0, 1))
        with pytest.raises(UnsupportedError, match="read-only"):
            plan_append(opened, Source.from_files("file:///x.parquet"))
        assert sorted(status.location for status in opened.io.list(opened.location)) == files


class TestInspecting:
    """The metadata reads as Arrow tables."""

    def test_snapshots_history_and_refs_tell_the_same_story(self, table):
        ids = [table.append(orders(i, 1)).snapshot_id for i in range(3)]
        look = table.inspect
        assert look.snapshots()["snapshot_id"].to_pylist() == ids
        assert look.history()["snapshot_id"].to_pylist() == ids
        assert look.history()["is_current_ancestor"].to_pylist() == [True] * 3
        (ref,) = look.refs().to_pylist()
        assert (ref["name"], ref["type"], ref["snapshot_id"]) == ("main", "BRANCH", ids[-1])
        assert look.metadata_log().num_rows == 3

    def test_files_and_partitions_add_up(self, table):
        table.append(orders(0, 24))
        table.append(orders(100, 5, day=2))
        files, partitions = table.inspect.files(), table.inspect.partitions()
        assert sum(files["record_count"].to_pylist()) == 29
        by_day = {row["partition"]["ts_day"]: row["record_count"] for row in partitions.to_pylist()}
        assert by_day == {dt.date(2026, 1, 1): 24, dt.date(2026, 1, 2): 5}

    def test_manifests_and_entries_are_there(self, table):
        table.append(orders(0, 5))
        manifest = table.inspect.manifests().to_pylist()[0]
        assert manifest["added_data_files_count"] == 1
        assert manifest["partition_summaries"][0]["lower_bound"] == "2026-01-01"
        entry = table.inspect.entries().to_pylist()[0]
        assert (entry["status"], entry["sequence_number"]) == (1, 1)

    def test_an_empty_table_has_empty_tables(self, table):
        look = table.inspect
        for name in ("snapshots", "history", "manifests", "files", "entries", "partitions", "metadata_log"):
            assert getattr(look, name)().num_rows == 0


class TestReservedFieldIds:
    """A column whose id is above 2147483447 is read, as in Iceberg Java, unless it stands for a metadata column."""

    def table(self, tmp_path, field_id):
        catalog = new_catalog(tmp_path)
        Table.create(catalog, "db.t", schema={"id": "long", "x": "string"})
        path = tmp_path / "db/t/metadata/v1.metadata.json"
        document = json.loads(path.read_text())
        document["schemas"][0]["fields"][1]["id"] = document["last-column-id"] = field_id
        path.write_text(json.dumps(document))
        table = Table.load(catalog, "db.t")
        table.append(pa.table({"id": [1], "x": ["a"]}))
        return table

    @pytest.mark.parametrize("field_id", [2147483447, 2147483448, 2147483546, 2147483647])
    def test_one_without_a_meaning_is_a_column(self, tmp_path, field_id):
        table = self.table(tmp_path, field_id)
        assert table.scan(row_filter="x = 'a'").to_arrow().to_pylist() == [{"id": 1, "x": "a"}]

    @pytest.mark.parametrize(
        ("field_id", "name"),
        [(2147483646, "_file"), (2147483645, "_pos"), (2147483642, "_partition"), (2147483540, "_row_id")],
    )
    def test_one_of_a_metadata_column_is_told_apart(self, tmp_path, field_id, name):
        table = self.table(tmp_path, field_id)
        assert table.scan(selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 1}]
        with pytest.raises(FormatError, match=f"column 'x' has field id {field_id}, which is reserved for '{name}'"):
            table.scan().to_arrow()

    def test_none_is_given_out(self, tmp_path):
        table = self.table(tmp_path, 2147483447)
        with pytest.raises(InvalidInputError, match="those above 2147483447 are reserved"):
            table.alter([{"add_column": {"name": "y", "type": "int"}}])


class TestMetadataColumns:
    """`_deleted` and `_partition` in tables of Iceberg Java."""

    @pytest.fixture(params=[name for name, known in golden.tables().items() if not known.is_refused])
    def table(self, request):
        known = golden.table(request.param)
        return Table.from_metadata(known.metadata_location, known.properties, io=known.io)

    def test_deleted_rows_come_with_the_others_and_are_marked(self, table):
        marked = table.scan(selected_fields=("_deleted", "_file", "_pos")).to_arrow().to_pylist()
        kept = table.scan(selected_fields=("_file", "_pos")).to_arrow().to_pylist()
        found = [{key: row[key] for key in ("_file", "_pos")} for row in marked if not row["_deleted"]]
        assert sorted(found, key=str) == sorted(kept, key=str)
        files = {task.file.file_path: task.file.record_count for task in table.scan().plan_files()}
        assert len(marked) == sum(files.values())

    def test_partition_values_are_those_of_the_file(self, table):
        found = table.scan(selected_fields=("_partition", "_file")).to_arrow().to_pylist()
        files = table.inspect.files()
        if "partition" not in files.column_names:
            return
        expected = dict(zip(files["file_path"].to_pylist(), files["partition"].to_pylist(), strict=True))
        assert all(row["_partition"] == expected[row["_file"]] for row in found)
