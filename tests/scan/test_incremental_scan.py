"""Rows that were appended between two snapshots."""

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.table import Table
from tests.support import golden
from tests.support.builders import new_table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, schema={"id": "long", "day": "date"}, partition_by=["bucket(2, id)"])
    for number in range(4):
        table.append(pa.table({"id": [number, number + 10]}))
    return table


def ids(table: Table, *args, **kwargs) -> list[int]:
    return sorted(table.incremental_append_scan(*args, **kwargs).to_arrow()["id"].to_pylist())


class TestWhichSnapshotsAreRead:
    """Those after the first one, up to and with the last one."""

    def test_the_first_is_not_read_and_the_last_is(self, table: Table) -> None:
        first, second, third, fourth = (snapshot.snapshot_id for snapshot in table.snapshots())
        assert ids(table, first, third) == [1, 2, 11, 12]
        assert ids(table, third, fourth) == [3, 13]
        assert ids(table, second) == [2, 3, 12, 13]

    def test_without_a_first_everything_appended_and_to_itself_nothing(self, table: Table) -> None:
        head = table.current_snapshot().snapshot_id
        assert ids(table, head, head) == []
        assert ids(table, head) == []
        assert ids(table) == [0, 1, 2, 3, 10, 11, 12, 13]

    def test_a_table_without_rows_has_nothing_and_no_ancestors(self, table: Table) -> None:
        empty = Table.create(table.catalog, "db.empty", schema={"id": "long"})
        assert ids(empty) == []
        with pytest.raises(InvalidInputError, match=r"snapshot 5 cannot be read from: table .* has no snapshot"):
            empty.incremental_append_scan(5)

    def test_one_side_must_be_a_known_ancestor_of_the_other(self, table: Table) -> None:
        first, second, *_ = (snapshot.snapshot_id for snapshot in table.snapshots())
        with pytest.raises(InvalidInputError, match=f"snapshot {second} is no ancestor of snapshot {first} in .*newer"):
            table.incremental_append_scan(second, first)
        with pytest.raises(InvalidInputError, match=r"snapshot 5 is no ancestor .* both may have been expired"):
            table.incremental_append_scan(5)
        with pytest.raises(NotFoundError, match="snapshot 5 is not in"):
            table.incremental_append_scan(None, 5)

    @pytest.mark.parametrize("bounds", [("5",), (None, "5"), (True,)])
    def test_ids_are_numbers(self, table: Table, bounds: tuple) -> None:
        with pytest.raises(InvalidInputError, match="expected an int: the id of a snapshot"):
            table.incremental_append_scan(*bounds)

    def test_it_ends_at_one_place(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="ends at one place"):
            table.incremental_append_scan(None, table.current_snapshot().snapshot_id, ref="main")


class TestWhatIsRead:
    """Filter, columns and limit are those of any scan."""

    def test_a_filter_and_columns(self, table: Table) -> None:
        first = table.snapshots()[0].snapshot_id
        scan = table.incremental_append_scan(first, row_filter="id > 2", selected_fields=("id", "_spec_id"))
        assert sorted(scan.to_arrow().to_pylist(), key=str) == [{"id": n, "_spec_id": 0} for n in (11, 12, 13, 3)]
        assert scan.count() == 4
        assert scan.to_arrow_batch_reader().read_all().num_rows == 4

    def test_files_of_other_partitions_are_not_planned(self, table: Table) -> None:
        first = table.snapshots()[0].snapshot_id
        planned = table.incremental_append_scan(first, row_filter="id = 3").plan_files()
        assert len(planned) < len(table.incremental_append_scan(first).plan_files())

    def test_a_limit(self, table: Table) -> None:
        assert table.incremental_append_scan(limit=3).to_arrow().num_rows == 3

    def test_rows_have_the_current_schema(self, table: Table) -> None:
        first, second, *_ = (snapshot.snapshot_id for snapshot in table.snapshots())
        table.alter([{"rename_column": {"from": "day", "to": "date"}}, {"add_column": {"name": "n", "type": "int"}}])
        assert table.incremental_append_scan(first, second).to_arrow().column_names == ["id", "date", "n"]


def appended(table: Table) -> dict[int, set[str]]:
    """Return the data files that each append added, by the entries of its own manifests."""
    result: dict[int, set[str]] = {}
    for snapshot in table.snapshots():
        entries = Table(table._state, io=table.io, catalog=None).scan(snapshot_id=snapshot.snapshot_id).plan_files()
        if snapshot.operation == "append":
            parent = snapshot.parent_snapshot_id
            before = table.scan(snapshot_id=parent).plan_files() if parent and table.metadata.snapshot(parent) else []
            known = {task.file.file_path for task in before}
            result[snapshot.snapshot_id] = {task.file.file_path for task in entries} - known
    return result


NAMES = [name for name, known in golden.tables().items() if not known.is_refused]


@pytest.mark.parametrize("name", NAMES)
class TestTablesOfIcebergJava:
    """Each append of a table is read alone; whatever else was done to the table is passed over."""

    def test_each_append_and_all_of_them_together(self, name: str) -> None:
        known = golden.table(name)
        table = Table.from_metadata(known.metadata_location, known.properties, io=known.io)
        lineage = {s.snapshot_id: s for s in table.metadata.ancestors(table.metadata.current_snapshot_id)}
        expected = {key: files for key, files in appended(table).items() if key in lineage}
        for snapshot_id, files in expected.items():
            if (parent := lineage[snapshot_id].parent_snapshot_id) is not None:
                scan = table.incremental_append_scan(parent, snapshot_id)
                assert {task.file.file_path for task in scan.plan_files()} == files
        found = [task.file.file_path for task in table.incremental_append_scan().plan_files()]
        assert set(found) == {path for files in expected.values() for path in files}
        assert len(found) == len(set(found))
