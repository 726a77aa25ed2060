"""Orphan files: found, moved out of the way, brought back; and never a file of the table."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import AlreadyExistsError, IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import (
    RemoveOrphanFilesRequest,
    RemoveOrphanFilesResult,
    remove_orphan_files,
)
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import age, folder_of, id_rows, ids, litter, new_table

DAY = 24 * 60 * 60
KEY = OperationKey(dag_id="d", run_id="r", task_id="clean")
# As the first versions of Iceberg wrote it: no uuid.
OLD = {
    "format-version": 1,
    "last-updated-ms": 1_600_000_000_000,
    "last-column-id": 1,
    "schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]},
    "partition-spec": [],
    "properties": {},
    "current-snapshot-id": -1,
    "snapshots": [],
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, schema={"id": "long", "_day": "int"}, partition_by=["_day"])
    for start in range(3):
        table.append(rows(start))
    age(folder_of(table))
    return table


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "_day": pa.array([number], pa.int32())})


def files(table: Table, pattern: str = "*") -> set[Path]:
    return {path for path in folder_of(table).rglob(pattern) if path.is_file()}


def sql_catalog(folder: Path, name: str = "c") -> Catalog:
    catalog = load_catalog(name, type="sql", uri=f"sqlite:///{folder}/{name}.db", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    return catalog


def in_days(days: float) -> int:
    return int((time.time() + days * DAY) * 1000)


def run(table: Table, *, key: OperationKey | None = None, **request: Any) -> RemoveOrphanFilesResult:
    return remove_orphan_files(Work(table, operation_key=key), RemoveOrphanFilesRequest(**request))


class TestWhatIsAnOrphan:
    """A file that is old enough, not hidden, and reached by no snapshot and no metadata."""

    def test_a_table_without_litter_loses_nothing(self, table):
        before = files(table)
        assert run(table, action="delete").outcome == "nothing"
        assert files(table) == before

    def test_old_files_that_nothing_reaches(self, table):
        paths = litter(table, "data/a.parquet", "data/_day=1/b.parquet", "metadata/left-m0.avro")
        result = run(table, action="delete")
        assert (result.outcome, result.orphan_files, result.orphan_files_size_bytes) == ("committed", 3, 18)
        assert not [path for path in paths if path.exists()]
        assert ids(table) == [0, 1, 2]

    @pytest.mark.parametrize(
        ("names", "days"),
        [(["data/a.parquet"], 2), (["data/_SUCCESS", "_other/a.parquet"], 10)],
        ids=["young ones, maybe of a job that runs", "hidden ones"],
    )
    def test_files_that_are_not_looked_at(self, table, names, days):
        paths = litter(table, *names, days=days)
        assert run(table).outcome == "nothing"
        assert all(path.exists() for path in paths)

    def test_files_of_every_snapshot_stay_also_of_those_on_no_branch(self, table):
        table.set_current_snapshot(table.snapshots()[0].snapshot_id)
        age(folder_of(table))
        before = files(table, "*.parquet")
        assert run(table, action="delete").outcome == "nothing"
        assert files(table, "*.parquet") == before

    def test_a_file_that_is_committed_while_it_is_looked_for_stays(self, table, monkeypatch):
        other = Table.load(table.catalog, "db.t")
        listing = type(table.io).list

        def lists_and_then_commits(self, prefix):
            found = list(listing(self, prefix))
            monkeypatch.undo()
            other.append(rows(9))
            age(folder_of(table))
            return iter(found)

        litter(table, "data/a.parquet")
        monkeypatch.setattr(type(table.io), "list", lists_and_then_commits)
        assert run(table, action="delete").orphan_files == 1
        assert ids(table.refresh()) == [0, 1, 2, 9]

    def test_a_folder_alone(self, table):
        inside, outside = litter(table, "data/a.parquet", "other/b.parquet")
        assert run(table, action="delete", location=f"{table.location}/data").orphan_files == 1
        assert not inside.exists()
        assert outside.exists()

    def test_other_places_of_the_table_are_not_looked_at_and_that_is_said(self, table, tmp_path, caplog):
        table.alter([{"set_properties": {"write.data.path": f"{tmp_path.as_uri()}/elsewhere"}}])
        with caplog.at_level("WARNING"):
            run(table)
        assert "elsewhere (write.data.path) are not looked for" in caplog.text

    def test_partitions_whose_names_are_encoded(self, tmp_path):
        schema = {"id": "long", "_p q%": "string"}
        table = new_table(tmp_path / "a b%20c", schema=schema, partition_by=["_p q%"])
        table.append(pa.table({"id": [1, 2, 3], "_p q%": ["x/y z", "%2F+é", None]}))
        age(folder_of(table))
        assert run(table, action="delete").outcome == "nothing"
        assert ids(table.refresh()) == [1, 2, 3]
        of_partition = next(path for path in (folder_of(table) / "data").rglob("*.parquet"))
        (of_partition.parent / "litter.parquet").write_bytes(b"litter")
        age(folder_of(table))
        assert run(table, action="delete").orphan_files == 1

    def test_a_dry_run_only_says_so(self, table):
        (path,) = litter(table, "data/a.parquet")
        result = run(table, action="dry_run")
        assert (result.outcome, result.orphan_files) == ("dry_run", 1)
        assert result.orphans == (path.as_uri(),)
        assert path.exists()


class TestQuarantine:
    """Orphans are moved, with a list; they can come back, and go for good later."""

    def test_they_are_moved_and_come_back(self, table):
        paths = litter(table, "data/a.parquet", "data/_day=1/b.parquet")
        result = run(table)
        assert (result.outcome, quarantines(table)) == ("committed", (result.quarantine,))
        assert not any(path.exists() for path in paths)
        assert len(files(table, ".quarantine/**/*.parquet")) == 2
        restored = restore_quarantine(Work(table), str(result.quarantine))
        assert (restored.restored_files, restored.restored_files_size_bytes) == (2, 12)
        assert [path.read_bytes() for path in paths] == [b"litter"] * 2
        assert quarantines(table) == ()

    def test_old_quarantines_are_purged(self, table):
        litter(table, "data/a.parquet")
        first = run(table, purge_older_than_ms=in_days(1))
        assert quarantines(table) == (first.quarantine,)  # what was moved just now
        assert run(table, purge_older_than_ms=in_days(-1)).purged_quarantines == ()
        purged = run(table, purge_older_than_ms=in_days(1))
        assert purged.purged_quarantines == (first.quarantine,)
        assert not files(table, ".quarantine/**/*.parquet")

    def test_halves_of_lists_are_purged_with_them(self, table):
        (half,) = litter(table, ".quarantine/20260101T000000.000-0123456789ab/0123.tmp")
        run(table, purge_older_than_ms=in_days(-20))
        assert half.exists()
        run(table, purge_older_than_ms=in_days(-1))
        assert not half.exists()

    def test_a_place_that_is_taken_is_not_written_over(self, table):
        first, second = litter(table, "data/a.parquet", "data/b.parquet")
        name = str(run(table).quarantine)
        first.write_bytes(b"new")
        with pytest.raises(AlreadyExistsError, match=r"1 files of quarantine .* their locations are taken"):
            restore_quarantine(Work(table), name)
        assert first.read_bytes() == b"new"
        assert second.read_bytes() == b"litter"
        first.unlink()
        # Over both tries.
        assert restore_quarantine(Work(table), name).restored_files == 2

    @pytest.mark.costly
    def test_a_move_that_died_is_finished_by_the_next_run(self, table, monkeypatch):
        paths = litter(table, "data/a.parquet", "data/b.parquet", "data/c.parquet")
        delete, left = type(table.io).delete, [1]

        def dies(self, locations):
            for location in locations:
                if location.endswith(".parquet"):
                    if not left[0]:
                        raise KeyboardInterrupt
                    left[0] -= 1
                delete(self, [location])

        monkeypatch.setattr(type(table.io), "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            run(table)
        monkeypatch.undo()
        result = run(table)
        assert result.outcome == "committed"
        assert not [path for path in paths if path.exists()]
        for name in quarantines(table):
            for path in paths:
                path.unlink(missing_ok=True)
            restore_quarantine(Work(table), name)
        assert ids(table) == [0, 1, 2]

    def test_all_tries_of_a_task_share_one(self, table):
        first, second = litter(table, "data/a.parquet", "data/b.parquet")
        hidden = second.rename(second.with_name("_b.parquet"))
        one = run(table, key=KEY)
        assert str(one.quarantine).endswith(KEY.file_token)
        hidden.rename(second)
        two, again = run(table, key=KEY), run(table, key=KEY)
        assert (one.orphan_files, two.orphan_files, again.orphan_files) == (1, 2, 2)
        assert {one.quarantine, two.quarantine, again.quarantine} == set(quarantines(table))
        assert again.outcome == "committed"
        assert restore_quarantine(Work(table), str(one.quarantine)).restored_files == 2
        assert [path.exists() for path in (first, second)] == [True, True]
        assert quarantines(table) == ()

    def test_a_cleared_task_has_one_of_its_own(self, table):
        litter(table, "data/a.parquet")
        run(table, key=KEY)
        cleared = replace(KEY, epoch=1)
        assert run(table, key=cleared).outcome == "nothing"
        litter(table, "data/b.parquet")
        assert run(table, key=cleared).orphan_files == 1
        assert len(quarantines(table)) == 2

    def test_a_restore_that_is_tried_again_says_what_it_has_done(self, table):
        litter(table, "data/a.parquet", "data/b.parquet")
        name = str(run(table).quarantine)
        first, second = (restore_quarantine(Work(table), name) for _ in range(2))
        assert (first.outcome, second) == ("committed", replace(first, outcome=second.outcome))
        assert second.outcome == "found"
        run(table, purge_older_than_ms=in_days(1))
        with pytest.raises(NotFoundError, match="has no quarantine"):
            restore_quarantine(Work(table), name)

    def test_half_of_a_copy_never_comes_back(self, table):
        (path,) = litter(table, "data/a.parquet")
        name = str(run(table).quarantine)
        age(folder_of(table))
        assert run(table).outcome == "nothing"  # what is in quarantine is not looked at again
        (copy,) = (folder_of(table) / ".quarantine" / name).rglob("*.parquet")
        copy.write_bytes(b"lit")
        assert restore_quarantine(Work(table), name).restored_files == 0
        assert not path.exists()
        assert quarantines(table) == ()

    @pytest.mark.costly
    def test_a_restore_that_died_while_it_copied_is_finished_by_the_next(self, table, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.operations.quarantine.CHUNK", 2)
        for length in range(7):
            paths = litter(table, "data/a.parquet", "data/b.parquet")
            name = str(run(table).quarantine)
            paths[0].write_bytes(b"litter"[:length])
            restored = restore_quarantine(Work(table), name)
            assert (restored.restored_files, restored.restored_files_size_bytes) == (2, 12)
            assert [path.read_bytes() for path in paths] == [b"litter"] * 2
            assert quarantines(table) == ()
            assert not files(table, ".quarantine/**/*.parquet")

    @pytest.mark.parametrize("there", [b"new", b"litterbox", b"LITTER", b"lix"])
    def test_what_is_not_the_beginning_of_the_file_is_not_half_of_it(self, table, there, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.operations.quarantine.CHUNK", 2)
        (path,) = litter(table, "data/a.parquet")
        name = str(run(table).quarantine)
        path.write_bytes(there)
        with pytest.raises(AlreadyExistsError, match="their locations are taken"):
            restore_quarantine(Work(table), name)
        assert path.read_bytes() == there

    def test_runs_of_one_moment_have_quarantines_of_their_own(self, table, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.operations.remove_orphan_files.now_ms", lambda: 1_790_000_000_000)
        for epoch, name in enumerate(("data/a.parquet", "data/b.parquet")):
            litter(table, name)
            os.utime(folder_of(table) / name, (1_700_000_000,) * 2)
            run(table, key=replace(KEY, epoch=epoch))
        assert len(quarantines(table)) == 2

    def test_an_unknown_name_is_said_with_the_known_ones(self, table):
        litter(table, "data/a.parquet")
        name = run(table).quarantine
        with pytest.raises(NotFoundError, match=f"has no quarantine 'nope'; it has: {name}"):
            restore_quarantine(Work(table), "nope")


class TestStaging:
    """Documents of jobs that died long ago go; those of a job that may run stay."""

    def test_by_the_youngest_document_of_a_job(self, table):
        old, *_ = litter(table, ".staging/dead/plan.json", ".staging/dead/exchange/x.arrow")
        litter(table, ".staging/alive/plan.json")
        (alive,) = litter(table, ".staging/alive/result.json", days=0)
        dry = run(table, action="dry_run")
        assert (dry.staging_files, dry.staging_files_size_bytes, old.exists()) == (2, 12, True)
        result = run(table)
        assert (result.staging_files, result.staging_files_size_bytes) == (2, 12)
        assert not old.exists()
        assert alive.exists()

    def test_the_log_says_what_went(self, table):
        litter(table, ".staging/dead/plan.json")
        (path,) = litter(table, "data/a.parquet")
        lines = list(run(table, action="delete").lines())
        assert lines[0].startswith("1 orphan files of ")
        assert lines[0].endswith(" files, 6 bytes, deleted")
        assert lines[1:] == [f"orphan file: {path.as_uri()}", "1 documents of jobs that died long ago, 6 bytes"]
        assert next(run(table).lines()).startswith("0 orphan files of ")


class TestRefusals:
    """What might take files of others is refused, and nothing is touched."""

    def test_a_table_that_lies_below(self, table):
        new_table(folder_of(table) / "inner")
        with pytest.raises(IncompatibleChangeError, match="shares its location"):
            run(table)

    @pytest.mark.parametrize("below", ["", "/data"])
    def test_a_location_or_a_folder_of_two_tables(self, tmp_path, below):
        catalog = sql_catalog(tmp_path)
        shared = f"{tmp_path.as_uri()}/shared"
        one, other = (Table.create(catalog, f"db.{n}", schema={"id": "long"}, location=shared) for n in ("one", "two"))
        other.append(id_rows([1]))
        age(folder_of(one))
        with pytest.raises(IncompatibleChangeError, match="shares its location"):
            run(one, action="delete", location=f"{shared}{below}" if below else None)
        assert ids(other.refresh()) == [1]

    def test_a_table_without_a_uuid_that_lies_below(self, table):
        (path,) = litter(table, "inner/metadata/v1.metadata.json")
        path.write_text(json.dumps(OLD | {"location": f"{table.location}/inner"}))
        with pytest.raises(IncompatibleChangeError, match=r"v1\.metadata\.json is of a table at .*/inner"):
            run(table)

    def test_another_table_behind_many_old_versions(self, table):
        own = next((folder_of(table) / "metadata").glob("v1.metadata.json")).read_bytes()
        for number in range(80):
            litter(table, f"metadata/v9{number}.metadata.json")[0].write_bytes(own)
        (path,) = litter(table, "metadata/00000-x.metadata.json")
        uuid = (table.metadata.table_uuid or "").encode()
        path.write_bytes(own.replace(uuid, b"11111111-2222-4333-8444-555555555555"))
        with pytest.raises(IncompatibleChangeError, match="11111111-2222-4333-8444-555555555555"):
            run(table)

    def test_a_table_that_another_catalog_has_and_has_committed_to(self, tmp_path):
        one, two = (sql_catalog(tmp_path, name) for name in "ab")
        table = Table.create(one, "db.t", schema={"id": "long"})
        two.register_table("db.t", table.metadata_location)
        other = Table.load(two, "db.t")
        for value in (1, 2):
            time.sleep(0.002)
            other.append(id_rows([value]))
        age(folder_of(table))
        with pytest.raises(IncompatibleChangeError, match="in another catalog, too"):
            run(table, action="delete")
        assert ids(other) == [1, 2]

    def test_versions_of_commits_that_lost_are_orphans_like_others(self, table):
        text = (folder_of(table) / "metadata" / "v4.metadata.json").read_text()
        paths = litter(table, "metadata/00004-lost.metadata.json", "metadata/00004-torn.metadata.json")
        paths[0].write_text(text)
        paths[1].write_text(text[:300])
        age(folder_of(table))
        assert run(table, action="delete").orphan_files == 2

    def test_a_table_that_shares_its_files(self, table):
        table.alter([{"set_properties": {"gc.enabled": "false"}}])
        with pytest.raises(InvalidInputError, match=r"gc\.enabled=false"):
            run(table)

    def test_a_manifest_that_is_missing(self, table):
        manifest = next((folder_of(table) / "metadata").glob("*-m0.avro"))
        manifest.unlink()
        (path,) = litter(table, "data/a.parquet")
        with pytest.raises(NotFoundError):
            run(table)
        assert path.exists()

    @pytest.mark.parametrize(
        ("request_", "message"),
        [
            ({"older_than_ms": in_days(0)}, "less than 24 hours ago"),
            ({"location": "file:///elsewhere"}, "is not below the table's"),
            ({"action": "burn"}, "unknown action 'burn'; one of quarantine, delete, dry_run"),
            ({"prefix_mismatch_mode": "x"}, "unknown prefix_mismatch_mode 'x'; one of error, ignore, delete"),
        ],
    )
    def test_what_cannot_be(self, table, request_, message):
        with pytest.raises(InvalidInputError, match=message):
            run(table, **request_)
