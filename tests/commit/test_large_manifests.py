"""Taking files by name out of large manifests, which are looked at as columns before any entry is read."""

from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_iceberg.commit import snapshot_writer
from airflow_iceberg.commit.manifest_filter import FilesToRemove, ManifestFilter
from airflow_iceberg.commit.snapshot_writer import SnapshotWriter
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestContent, ManifestEntry
from airflow_iceberg.inventory.manifests import read_entries
from tests.support.changes import make_table
from tests.support.memory import MemoryCatalog

FILES = 1_300


@pytest.fixture(params=[1, 2, 3])
def table(request):
    return make_table(MemoryCatalog(), request.param)


def data_file(name):
    return DataFile(
        file_path=f"memory://data/{uuid4()}/{name}.parquet",
        file_format="parquet",
        partition=("a",),
        spec_id=0,
        record_count=1,
        file_size_in_bytes=100,
    )


def write(table):
    writer = SnapshotWriter(table.io, snapshot_id=1, commit_uuid=uuid4())
    files = [data_file(f"x-{number}") for number in range(FILES)]
    given = {"status": EntryStatus.ADDED, "snapshot_id": 1, "sequence_number": 0, "file_sequence_number": 0}
    entries = [ManifestEntry(data_file=file, **given) for file in files]
    manifest = writer.write_manifest(entries, ManifestContent.DATA, writer.basis(table.metadata, 0))
    assert manifest.manifest_length > snapshot_writer.LARGE_BYTES
    return in_list(manifest), files


def in_list(manifest):
    return replace(manifest, sequence_number=0, min_sequence_number=0)


def take_out(table, manifest, removal):
    writer = SnapshotWriter(table.io, snapshot_id=7, commit_uuid=uuid4())
    return writer.without_files(manifest, ManifestFilter(removal, table.metadata), table.metadata)


class TestTakingOut:
    """It gives what reading each entry gives."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "naming",
        [
            lambda file: FilesToRemove(files=(file,)),
            lambda file: FilesToRemove(paths=frozenset({file.file_path})),
        ],
        ids=["files", "paths"],
    )
    def test_a_manifest_is_written_anew_if_it_has_the_file(self, table, naming):
        manifest, files = write(table)
        assert take_out(table, manifest, naming(data_file("other"))) == (manifest, ())
        gone = files[123]
        written, removed = take_out(table, manifest, naming(gone))
        assert [entry.data_file.file_path for entry in removed] == [gone.file_path]
        assert (written.existing_files_count, written.deleted_files_count) == (FILES - 1, 1)
        left = [entry.data_file.file_path for entry in read_entries(table.io, in_list(written)) if entry.is_live]
        assert left == [file.file_path for file in files if file is not gone]

    @pytest.mark.costly
    def test_a_partition_is_not_a_matter_of_paths(self, table):
        manifest, files = write(table)
        _, removed = take_out(table, manifest, FilesToRemove(partitions=(data_file("other"),)))
        assert len(removed) == len(files)

    def test_a_torn_manifest_is_refused_as_ever(self, table):
        manifest, _ = write(table)
        torn = table.io.read(manifest.manifest_path)[:-100]
        table.io.delete([manifest.manifest_path])
        table.io.create(manifest.manifest_path, torn)
        with pytest.raises(FormatError, match="the file is torn"):
            take_out(table, manifest, FilesToRemove(files=(data_file("other"),)))
