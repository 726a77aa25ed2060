"""Expiring snapshots: the commit first, then the files that nothing reaches any more, and no others."""

import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.format.metadata.updates import Change, SetStatistics
from airflow_iceberg.inventory.manifests import read_manifests
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, ExpireSnapshotsResult, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import age, id_rows, ids, job_work, litter, new_table, reachable, staged
from tests.support.change_table import ChangeTable

KEY = OperationKey(dag_id="d", run_id="r", task_id="expire")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five appends of ten rows, then a compaction that replaces all files."""
    table = new_table(tmp_path)
    for start in range(0, 50, 10):
        append(table, start)
    compact(job_work(table), CompactRequest())
    return table


def append(table: Table, start: int) -> None:
    table.append(id_rows(range(start, start + 10)))


def expire(
    table: Table, *, key: OperationKey | None = None, older_than_ms: int | None = 2**62, **request: Any
) -> ExpireSnapshotsResult:
    """Expire; by default all snapshots that nothing keeps."""
    return expire_snapshots(
        Work(table, operation_key=key), ExpireSnapshotsRequest(older_than_ms=older_than_ms, **request)
    )


def make_tag(table: Table, name: str, snapshot_id: int | None = None) -> None:
    table.create_tag(name, snapshot_id)


def on_disk(table: Table) -> set[str]:
    """Data files, manifests and manifest lists; not the versions of the metadata itself."""
    kept = (".parquet", ".avro", ".puffin")
    return {status.location for status in table.io.list(table.location) if status.location.endswith(kept)}


@contextmanager
def refusing(table, monkeypatch, error, *endings, after=0):
    """Let deletions of files that end so raise an error, after some of them."""
    delete, left = type(table.io).delete, [after]

    def refuses(self, locations):
        for location in locations:
            if location.endswith(endings):
                if not left[0]:
                    raise error
                left[0] -= 1
            delete(self, [location])

    with monkeypatch.context() as patch:
        patch.setattr(type(table.io), "delete", refuses)
        yield


def expire_and_die(table, monkeypatch, after=0):
    """Let an expiry die between its commit and the first file, or after some files."""
    with refusing(table, monkeypatch, KeyboardInterrupt, ".parquet", ".avro", after=after):
        with pytest.raises(KeyboardInterrupt):
            expire(table, key=KEY)


def expire_without_a_commit(table, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(table.catalog), "commit", Mock(side_effect=IcebergError("no")))
        with pytest.raises(IcebergError):
            expire(table, key=KEY)


class TestWhatGoes:
    """Files that only expired snapshots reached go; what any snapshot that stays reaches is as before."""

    @pytest.mark.costly
    def test_the_files_of_replaced_snapshots_go(self, table):
        result = expire(table)
        assert (result.outcome, result.expired_snapshots) == ("committed", 5)
        assert result.deleted_data_files == 5
        assert result.deleted_manifest_lists == 5
        assert result.removed_files_size_bytes > 0
        assert on_disk(table) == reachable(table)
        assert ids(table) == list(range(50))

    def test_without_a_rewrite_no_data_file_goes(self, tmp_path):
        table = new_table(tmp_path / "other")
        append(table, 0)
        append(table, 10)
        result = expire(table)
        assert (result.expired_snapshots, result.deleted_data_files) == (1, 0)
        assert on_disk(table) == reachable(table)
        assert ids(table) == list(range(20))

    @pytest.mark.costly
    def test_a_tag_keeps_its_snapshot_and_its_files(self, table):
        make_tag(table, "kept", table.snapshots()[2].snapshot_id)
        result = expire(table)
        assert (result.expired_snapshots, result.deleted_data_files) == (4, 2)
        assert ids(table, ref="kept") == list(range(30))
        assert on_disk(table) == reachable(table)

    def test_young_snapshots_stay_and_so_many_others(self, table):
        assert expire(table, older_than_ms=None).outcome == "nothing"
        assert expire(table, retain_last=4).expired_snapshots == 2
        assert len(table.snapshots()) == 4

    @pytest.mark.costly
    def test_named_snapshots_go(self, table):
        wanted = table.snapshots()[0].snapshot_id
        assert expire(table, older_than_ms=None, snapshot_ids=(wanted,)).expired_snapshots == 1
        assert table.metadata.snapshot(wanted) is None
        assert on_disk(table) == reachable(table)

    @pytest.mark.costly
    def test_staged_and_rolled_back_snapshots_go_with_their_files(self, table):
        append(table, 50)
        table.set_current_snapshot(table.snapshots()[-2].snapshot_id)
        result = expire(table)
        assert (result.expired_snapshots, result.deleted_data_files) == (6, 6)
        assert on_disk(table) == reachable(table)

    @pytest.mark.costly
    def test_a_staged_file_of_a_running_writer_stays(self, table):
        location = f"{table.location}/data/staged.parquet"
        table.io.create(location, b"x")
        expire(table)
        assert table.io.exists(location)


class TestUnusedMetadata:
    """With `clean_expired_metadata`, schemas and specs go that nothing uses any more."""

    @pytest.mark.costly
    def test_old_schemas_and_specs_are_forgotten(self, table):
        table.alter([{"add_column": {"name": "name", "type": "string"}}, {"add_partition_field": "bucket(2, id)"}])
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        append(table, 50)  # the manifests that tell of the deleted files are left out now
        result = expire(table, clean_expired_metadata=True)
        assert (result.removed_schemas, result.removed_partition_specs) == (1, 1)
        assert [schema.schema_id for schema in table.metadata.schemas] == [1]
        assert ids(table) == list(range(60))

    @pytest.mark.costly
    def test_what_a_snapshot_uses_stays(self, table):
        make_tag(table, "before")
        table.alter([{"add_column": {"name": "name", "type": "string"}}])
        append(table, 50)
        result = expire(table, clean_expired_metadata=True)
        assert result.removed_schemas == 0
        assert ids(table, ref="before") == list(range(50))


class TestDryRun:
    """It says what would go, and what each ref keeps alive, and changes nothing."""

    @pytest.mark.costly
    def test_it_counts_as_the_real_run_does_and_says_what_each_ref_keeps_alive(self, table):
        make_tag(table, "kept", table.snapshots()[1].snapshot_id)
        sizes = {task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()}
        before = on_disk(table), table.metadata_location
        dry = expire(table, dry_run=True)
        assert (on_disk(table), table.refresh().metadata_location) == before
        real = expire(table)
        assert dry.outcome == "dry_run"
        assert dry.expired_snapshots == real.expired_snapshots == 4
        assert dry.deleted_data_files == real.deleted_data_files == 3
        assert dry.removed_files_size_bytes == real.removed_files_size_bytes
        refs = {ref.name: ref for ref in expire(table, older_than_ms=None, dry_run=True).refs}
        assert refs["main"].exclusive_bytes == sum(sizes.values())
        assert refs["kept"].exclusive_bytes == refs["kept"].size_bytes > 0
        assert not staged(table)


class TestATryThatDies:
    """The next try of the task deletes what is left; nothing that is reached ever goes."""

    @pytest.mark.costly
    @pytest.mark.parametrize("deleted_before", [0, 2, 7, 12])
    def test_files_left_behind_go_with_the_next_try(self, table, monkeypatch, deleted_before):
        expire_and_die(table, monkeypatch, after=deleted_before)
        again = Table.load(table.catalog, "db.t")
        assert len(again.snapshots()) == 1
        result = expire(again, key=KEY)
        assert result.outcome == "finished"
        assert on_disk(again) == reachable(again)
        assert ids(again) == list(range(50))
        assert expire(again, key=KEY).outcome == "nothing"

    @pytest.mark.costly
    def test_files_that_cannot_be_deleted_are_counted_and_tried_again(self, table, monkeypatch):
        with refusing(table, monkeypatch, StorageError("read-only"), ".parquet"):
            result = expire(table, key=KEY)
        assert (result.outcome, result.failed_files) == ("committed", 5)
        assert expire(table, key=KEY).outcome == "finished"
        assert on_disk(table) == reachable(table)

    @pytest.mark.costly
    def test_a_list_of_what_is_gone_that_cannot_be_deleted_is_no_failure(self, table, monkeypatch):
        with refusing(table, monkeypatch, StorageError("no answer"), "expired.json"):
            result = expire(table, key=KEY)
        assert (result.outcome, result.failed_files) == ("committed", 0)
        assert on_disk(table) == reachable(table)
        assert expire(table, key=KEY).outcome == "finished"
        assert not staged(table)

    def test_a_commit_that_did_not_land_deletes_nothing(self, table, monkeypatch):
        before = on_disk(table)
        expire_without_a_commit(table, monkeypatch)
        assert on_disk(table) == before
        assert expire(table, key=KEY, older_than_ms=None).outcome == "nothing"
        assert on_disk(table) == before

    @pytest.mark.costly
    def test_files_of_a_table_that_was_dropped_since_are_left_alone(self, table, monkeypatch):
        expire_and_die(table, monkeypatch)
        before = on_disk(table)
        (note,) = staged(table)
        text = table.io.read(note).replace((table.metadata.table_uuid or "").encode(), b"another")
        table.io.delete([note])
        table.io.create(note, text)
        assert expire(table.refresh(), key=KEY).outcome == "nothing"
        assert on_disk(table) == before


class TestWhatDeadJobsLeave:
    """Documents go once they are too old to be of a running job; what an expiry had noted is finished first."""

    @pytest.mark.costly
    def test_files_of_an_expiry_that_nobody_tries_again_go_with_a_later_one(self, table, monkeypatch):
        expire_and_die(table, monkeypatch)
        (note,) = staged(table)
        age(Path(note.removeprefix("file://")), days=2)  # it may still be running
        assert expire(table.refresh(), older_than_ms=None).outcome == "nothing"
        assert staged(table) == [note]
        age(Path(note.removeprefix("file://")), days=4)
        result = expire(table, older_than_ms=None)
        assert (result.outcome, result.deleted_data_files, result.staging_files) == ("finished", 5, 1)
        assert on_disk(table) == reachable(table)
        assert not staged(table)

    def test_a_note_whose_commit_never_landed_deletes_no_file(self, table, monkeypatch):
        expire_without_a_commit(table, monkeypatch)
        before = on_disk(table)
        age(Path(staged(table)[0].removeprefix("file://")), days=4)
        result = expire(table.refresh(), older_than_ms=None)
        assert (result.outcome, result.staging_files) == ("nothing", 1)
        assert on_disk(table) == before
        assert not staged(table)

    def test_documents_of_other_jobs_go_by_the_youngest_of_each(self, table):
        for name, days in (("dead/plan.json", 9), ("dead/walked/0.arrow", 4), ("alive/plan.json", 9), ("alive/x", 1)):
            litter(table, f".staging/{name}", days=days)
        dry = expire(table, older_than_ms=None, dry_run=True)
        assert (dry.staging_files, len(staged(table))) == (2, 4)
        assert expire(table, older_than_ms=None).staging_files == 2
        assert {path.split("/")[-2] for path in staged(table)} == {"alive"}

    @pytest.mark.costly
    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"snapshots": 3}'])
    def test_a_damaged_note_of_a_dead_expiry_stops_nobody(self, table, text):
        litter(table, ".staging/expire-x/y/expired.json", data=text, days=4)
        result = expire(table)
        assert (result.outcome, result.staging_files) == ("committed", 1)
        assert not staged(table)
        assert on_disk(table) == reachable(table)


class TestWhatTheLogSays:
    """A line for what went, in words; of a dry run one for each ref."""

    def test_of_a_run(self, table):
        lines = list(expire(table).lines())
        assert lines[0] == "5 snapshots were deleted"
        assert re.fullmatch(
            r"5 data files, 0 position and 0 equality delete files, [\d.]+ KiB, \d manifests, 5 manifest lists and "
            r"0 statistics files were deleted",
            lines[1],
        )
        assert len(lines) == 2
        assert list(expire(table).lines()) == ["no snapshot has expired"]

    @pytest.mark.costly
    def test_of_a_dry_run(self, table):
        make_tag(table, "kept", table.snapshots()[1].snapshot_id)
        lines = list(expire(table, dry_run=True).lines())
        assert lines[0] == "4 snapshots would be deleted"
        assert re.fullmatch(r"ref kept: 1 snapshots keep .* alive, 0 bytes of them alone", lines[-2])
        assert re.fullmatch(r"ref main: 6 snapshots keep .* alive, .* of them alone", lines[-1])


class TestOneFileByTwoNames:
    """A path is compared without scheme and authority: what stays under one spelling does not go under the other."""

    @pytest.mark.costly
    def test_a_file_that_stays_under_another_name_is_not_deleted(self, table):
        (task,) = table.scan().plan_files()
        before, path = table.current_snapshot(), task.file.file_path
        table.overwrite(id_rows([1]))
        other = replace(task.file, file_path=path.replace("file:///", "file:/"))
        assert other.file_path != path
        settings = table.commit_settings(branch="main", operation_key=None, try_number=1, snapshot_properties={})
        table.commit(AppendFiles(table.io, (other,), settings, written_schema=table.schema()))
        result = expire(table, older_than_ms=None, snapshot_ids=(before.snapshot_id,))
        assert (result.expired_snapshots, result.deleted_data_files) == (1, 0)
        assert table.io.exists(path)


class TestStatistics:
    """Statistics go with their snapshot, unless another one that stays has the same file."""

    def test_shared_files_stay(self, table):
        first, *_, last = (snapshot.snapshot_id for snapshot in table.snapshots())
        own, shared = (f"{table.location}/metadata/{name}.stats.puffin" for name in ("own", "shared"))
        for path in (own, shared):
            table.io.create(path, b"x")
        updates = tuple(
            SetStatistics(
                snapshot_id=snapshot_id,
                statistics={
                    **{"snapshot-id": snapshot_id, "statistics-path": path, "blob-metadata": []},
                    **{"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1},
                },
            )
            for snapshot_id, path in ((first, own), (last, shared), (table.snapshots()[1].snapshot_id, shared))
        )
        table.change(ChangeTable(lambda _: Change(updates=updates)))
        result = expire(table)
        assert result.deleted_statistics_files == 1
        assert not table.io.exists(own)
        assert table.io.exists(shared)
        assert len(table.metadata.statistics) == 1


class TestRefusals:
    """What cannot be done safely is not begun."""

    def test_a_table_that_shares_its_files(self, table):
        table.alter([{"set_properties": {"gc.enabled": "false"}}])
        before = on_disk(table)
        with pytest.raises(InvalidInputError, match=r"gc\.enabled=false"):
            expire(table)
        assert on_disk(table) == before

    def test_a_snapshot_that_a_tag_points_to_or_that_is_not_there(self, table):
        tagged = table.snapshots()[0].snapshot_id
        make_tag(table, "kept", tagged)
        with pytest.raises(InvalidInputError, match="still referenced by 'kept'"):
            expire(table, older_than_ms=None, snapshot_ids=(tagged,))
        with pytest.raises(NotFoundError, match="cannot expire snapshot 1"):
            expire(table, older_than_ms=None, snapshot_ids=(1,))

    def test_a_manifest_that_is_missing_where_it_is_needed_deletes_nothing(self, table):
        (manifest, *_) = read_manifests(table.io, table.current_snapshot())
        table.io.delete([manifest.manifest_path])
        before = on_disk(table)
        with pytest.raises(NotFoundError):
            expire(table)
        assert on_disk(table) == before
