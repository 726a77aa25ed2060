"""Files counted by partition, and those that a snapshot changed; never more than was asked for."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.inventory import manifests
from airflow_iceberg.inventory.limited import LimitedFileIO
from airflow_iceberg.scan import counted_files, metadata_tables
from airflow_iceberg.scan.counted_files import changed_files, count_files, partition_bytes
from airflow_iceberg.table import Table
from tests.support.builders import new_table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three appends into two partitions, of which the first has a deleted row."""
    properties = {"write.delete.mode": "merge-on-read"}
    made = new_table(tmp_path, schema={"id": "long", "p": "string"}, partition_by=["p"], properties=properties)
    for first in (0, 10, 20):
        names = ["a", "a", "b"] if first < 20 else ["a"] * 3
        made.append(pa.table({"id": list(range(first, first + 3)), "p": names}))
    made.delete("id = 1")
    return made


def counted(table: Table, **options: Any) -> Any:
    limits = {"small_below": 1 << 20, "min_small_files": 3, "most_partitions": 10, **options}
    return count_files(table.metadata, table.io, table.current_snapshot(), **limits)


def test_files_rows_and_deletes_are_counted_by_partition(table):
    found = counted(table)
    shown = [(one.name, one.data_files, one.small_files, one.rows, one.delete_files) for one in found.worst]
    assert shown == [("p=a", 3, 3, 7, 1), ("p=b", 2, 2, 2, 0)]
    assert (found.total.data_files, found.total.rows, found.total.deleted_rows) == (5, 9, 1)
    assert (found.partition_count, found.partitions_to_compact, found.is_cut) == (2, 1, False)
    assert counted(table, small_below=1).total.small_files == 0


def test_the_worst_partitions_are_named_and_all_are_counted(table):
    found = counted(table, most_partitions=1)
    assert [one.name for one in found.worst] == ["p=a"]
    assert (found.partition_count, found.total.data_files) == (2, 5)


def test_the_newest_manifests_are_read_if_there_are_too_many_entries(table):
    found = counted(table, most_entries=2)
    assert found.is_cut
    assert 0 < found.manifests_read < found.manifests
    assert counted(table, most_entries=0).manifests_read == 1


def test_the_files_of_one_snapshot(table):
    metadata = table.metadata
    first, *_, last = metadata.snapshots
    added, is_cut = changed_files(metadata, table.io, first, most=10)
    assert [(one.is_added, one.content, one.rows, one.partition) for one in added] == [
        (True, 0, 2, "p=a"),
        (True, 0, 1, "p=b"),
    ]
    assert not is_cut
    (deleted,), _ = changed_files(metadata, table.io, last, most=10)
    assert (deleted.is_added, deleted.content, deleted.rows) == (True, 1, 1)
    cut = changed_files(metadata, table.io, first, most=1)
    assert (len(cut[0]), cut[1]) == (1, True)


def test_the_files_of_one_snapshot_are_cut_where_too_many_entries_would_be_read(table, monkeypatch):
    monkeypatch.setattr(counted_files, "MOST_ENTRIES", 1)
    files, is_cut = changed_files(table.metadata, table.io, table.metadata.snapshots[0], most=10)
    assert (len(files), is_cut) == (1, True)


def test_a_table_without_snapshots_has_no_files(tmp_path):
    assert counted(new_table(tmp_path)).total.data_files == 0


class TestLongAndManyValues:
    """Partitions are told apart as long as they take the memory that partitions take."""

    def test_the_rest_is_not_counted(self, table, monkeypatch):
        monkeypatch.setattr(counted_files, "MOST_PARTITION_BYTES", 200)
        found = counted(table)
        assert (found.partition_count, found.has_more, found.is_cut) == (1, True, True)

    def test_who_waits_for_a_partition_is_told(self, table, monkeypatch):
        monkeypatch.setattr(metadata_tables, "MOST_PARTITION_BYTES", 200)
        snapshot_id = table.metadata.snapshots[0].snapshot_id
        with pytest.raises(UnsupportedError, match="partitions with values of more than 200 bytes of memory") as told:
            table.inspect.partition_counts(snapshot_id, most=100)
        assert told.value.advice == "wait for it in a worker, with deferrable=False"
        assert len(table.inspect.partition_counts(snapshot_id)) == 2
        assert table.inspect.touched_partitions(snapshot_id) is None

    def test_a_manifest_may_have_so_many(self, table, monkeypatch):
        """Two of them are held at a time, and a null is one byte of a file."""
        monkeypatch.setattr(manifests, "_MOST_PARTITION_VALUES", 1)
        limited = Table(table.state, io=LimitedFileIO(table.io), catalog=None)
        with pytest.raises(UnsupportedError, match="values of partitions, which are not read here"):
            limited.inspect.partition_counts(most=100)
        assert len(table.inspect.partition_counts()) == 2

    def test_values_are_counted_by_their_length_and_their_number(self):
        assert partition_bytes(("x" * 5_000, None)) > 5_000
        assert partition_bytes((None,) * 800) > 50_000
        assert partition_bytes((1, 2, 3)) < 1_000

    def test_a_long_value_is_cut_before_it_is_shown(self, tmp_path):
        made = new_table(tmp_path, schema={"id": "long", "p": "string"}, partition_by=["p"])
        made.append(pa.table({"id": [1], "p": ["é" * 35]}))
        (file,), is_cut = changed_files(made.metadata, made.io, made.current_snapshot(), most=10)
        assert (file.partition, is_cut) == ("p=" + "%C3%A9" * 35, False)
        name = counted_files._partition_name(made.metadata, made.spec().spec_id, ("é" * 2_000,))
        assert name == ("p=" + "%C3%A9" * 60)[:300]
