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


def write(table, name):
    """Return a manifest of many files, and these."""
    writer = SnapshotWriter(table.io, snapshot_id=1, commit_uuid=uuid4())
    files = [data_file(f"{name}-{number}") for number in range(FILES)]
    entries = [
        ManifestEntry(
            status=EntryStatus.ADDED, snapshot_id=1, sequence_number=0, file_sequence_number=0, data_file=file
        )
        for file in files
    ]
    manifest = writer.write_manifest(entries, 0, ManifestContent.DATA, table.metadata)
    assert manifest.manifest_length > snapshot_writer.LARGE_BYTES
    return in_list(manifest), files


def in_list(manifest):
    """Return the row as a list would give it back."""
    return replace(manifest, sequence_number=0, min_sequence_number=0)


def take_out(table, manifest, removal):
    writer = SnapshotWriter(table.io, snapshot_id=7, commit_uuid=uuid4())
    return writer.without_files(manifest, ManifestFilter(removal, table.metadata), table.metadata)


class TestTakingOut:
    """It gives what reading each entry gives."""

    @pytest.mark.parametrize("by", ["files", "paths"])
    def test_a_manifest_without_the_file_stays_as_it_is(self, table, by):
        manifest, _ = write(table, "x")
        other = data_file("other")
        removal = FilesToRemove(files=(other,)) if by == "files" else FilesToRemove(paths=frozenset({other.file_path}))
        assert take_out(table, manifest, removal) == (manifest, ())

    @pytest.mark.parametrize("by", ["files", "paths"])
    def test_a_manifest_with_it_is_written_anew(self, table, by):
        manifest, files = write(table, "x")
        gone = files[123]
        removal = FilesToRemove(files=(gone,)) if by == "files" else FilesToRemove(paths=frozenset({gone.file_path}))
        written, removed = take_out(table, manifest, removal)
        assert [entry.data_file.file_path for entry in removed] == [gone.file_path]
        assert (written.existing_files_count, written.deleted_files_count) == (FILES - 1, 1)
        left = [entry.data_file.file_path for entry in read_entries(table.io, in_list(written)) if entry.is_live]
        assert left == [file.file_path for file in files if file is not gone]

    def test_a_partition_is_not_a_matter_of_paths(self, table):
        manifest, files = write(table, "x")
        _, removed = take_out(table, manifest, FilesToRemove(partitions=(data_file("other"),)))
        assert len(removed) == len(files)

    def test_a_torn_manifest_is_refused_as_ever(self, table):
        manifest, _ = write(table, "x")
        torn = table.io.read(manifest.manifest_path)[:-100]
        table.io.delete([manifest.manifest_path])
        table.io.create(manifest.manifest_path, torn)
        with pytest.raises(FormatError, match="the file is torn"):
            take_out(table, manifest, FilesToRemove(files=(data_file("other"),)))
