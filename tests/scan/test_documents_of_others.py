"""What other writers leave out or write otherwise, read as a whole table: errors say what it is."""

import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import add_file, id_rows, new_catalog

LATER_MS = 9_000_000_000_000


@pytest.fixture
def table(tmp_path):
    catalog = new_catalog(tmp_path)
    table = Table.create(catalog, "db.t", schema={"id": "long"})
    table.append(id_rows([1]))
    table.append(id_rows([2]))
    return table


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def rewritten(table, change) -> Table:
    """Return the table as it is read from its metadata after a change of the document."""
    document = json.loads(path_of(table.metadata_location).read_text())
    change(document)
    path = path_of(table.metadata_location).with_name("00099-other.metadata.json")
    path.write_text(json.dumps(document))
    return Table.from_metadata(path.as_uri())


class TestAnEncryptedManifestList:
    """It is said to be encrypted, whether the snapshot names a key or not, and nothing is deleted for it."""

    READS = {
        "scan": lambda table: table.scan().to_arrow(),
        "append": lambda table: table.append(id_rows([3])),
        "delete": lambda table: table.delete("id = 1"),
        "inspect": lambda table: table.inspect.files(),
        "expiry": lambda table: expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=LATER_MS)),
        "orphans": lambda table: remove_orphan_files(Work(table), RemoveOrphanFilesRequest()),
    }

    @pytest.mark.parametrize("read", READS)
    def test_is_named(self, table, read):
        path = path_of(table.current_snapshot().manifest_list)
        path.write_bytes(b"AGS1" + path.read_bytes())
        with pytest.raises(
            UnsupportedError, match=rf"encrypted file .*{path.name}: encrypted tables are not supported"
        ):
            self.READS[read](table)
        assert len(list(path.parent.parent.glob("data/*.parquet"))) == 2


class TestAMissingSnapshotLog:
    """Without it, nobody knows what was current at a time: the error says so, and other reads work."""

    @pytest.mark.parametrize("log", ["missing", None, []])
    def test_time_travel_says_so(self, table, log):
        def change(document):
            document.pop("snapshot-log") if log == "missing" else document.update({"snapshot-log": log})

        found = rewritten(table, change)
        with pytest.raises(NotFoundError, match=r"has no snapshot log, .* select the rows by snapshot_id or ref$"):
            found.scan(as_of_ms=LATER_MS)
        assert found.scan(snapshot_id=found.current_snapshot().snapshot_id).count() == 2

    def test_a_time_before_the_first_entry_is_another_error(self, table):
        with pytest.raises(NotFoundError, match="has no snapshot as old as 1 ms"):
            table.scan(as_of_ms=1)

    def test_a_table_whose_main_never_had_a_snapshot_needs_none(self, tmp_path):
        table = Table.create(new_catalog(tmp_path), "db.u", schema={"id": "long"})
        with pytest.raises(NotFoundError, match="has no snapshot as old as"):
            table.scan(as_of_ms=LATER_MS)


class TestFieldIdsThatAreNoNumbers:
    """A forged id in a data file is an error with column and file: the Arrow schema in a Parquet file may have any."""

    @pytest.mark.parametrize("text", ["x", "1.5", "", str(2**31)])
    def test_in_parquet(self, table, text):
        path = next(path_of(table.location).glob("data/*.parquet"))
        schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": text})])
        pq.write_table(pa.table({"id": [1]}, schema=schema), path)
        with pytest.raises(
            FormatError, match=rf"column 'id' has the field id '{text}', expected .* bits of .*/{path.name}$"
        ):
            Table.load(table.catalog, "db.t").scan().to_arrow()

    @pytest.mark.parametrize("bad", ["x", 1.5, True, "1"])
    def test_in_avro(self, table, tmp_path, bad):
        path = tmp_path / "f.avro"
        record = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long", "field-id": bad}]}
        with path.open("wb") as file:
            fastavro.writer(file, record, [{"id": 1}])
        add_file(table, path, record_count=1, file_format="avro")
        with pytest.raises(FormatError, match=r"field 'id' of an Avro schema has a field id of type \w+, .*f\.avro$"):
            table.scan().to_arrow()

    def test_in_arrow_that_a_table_is_made_from(self, tmp_path):
        schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "x"})])
        with pytest.raises(InvalidInputError, match=r"column 'id' has the field id 'x', expected .* bits in"):
            Table.create(new_catalog(tmp_path), "db.u", schema=schema)
