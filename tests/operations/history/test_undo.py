"""Undo of a run: the rows that it has added are gone, those that it has deleted are there again, or it is refused."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.operation_key import UNDONE_KEYS, OperationKey, undone_in
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import IncompatibleChangeError, InvalidInputError, NotFoundError
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.history import undo as module
from airflow_iceberg.operations.history.targets import Selection
from airflow_iceberg.operations.history.undo import UndoRequest, undo
from airflow_iceberg.operations.wap.publish import PublishRequest, publish
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids, job_work, lineage, new_table
from tests.support.memory import Fault, FaultyCatalog, MemoryCatalog
from tests.support.recording import RecordingFileIO

REFUSED = IncompatibleChangeError


def key(run="r1", task="load", **more):
    return OperationKey(dag_id="d", run_id=run, task_id=task, **more)


@pytest.fixture(params=[1, 2, 3], ids=["v1", "v2", "v3"])
def table(request, tmp_path):
    table = new_table(tmp_path, properties={"format-version": str(request.param)})
    table.append(id_rows(range(5)), operation_key=key("r1"))
    table.append(id_rows(range(5, 10)), operation_key=key("r2"))
    return table


@pytest.fixture
def third(tmp_path):
    """A table of version 3 with two runs."""
    table = new_table(tmp_path, properties={"format-version": "3"})
    table.append(id_rows(range(5)), operation_key=key("r1"))
    table.append(id_rows(range(5, 10)), operation_key=key("r2"))
    return table


def everything(table):
    return compact(job_work(table), CompactRequest(options={"rewrite-all": True}))


class TestAnAppend:
    """Its files are removed, whoever has committed since."""

    def test_is_undone_beneath_another_run(self, table):
        result = table.undo(key("r1"))
        assert ids(table) == list(range(5, 10))
        assert (result.outcome, result.removed_records, result.removed_data_files) == ("committed", 5, 1)
        head = table.current_snapshot()
        assert head.operation == "delete"
        assert (result.snapshot_id, undone_in(head)) == (head.snapshot_id, (table.snapshots()[0].snapshot_id,))
        assert json.loads(head.summary[UNDONE_KEYS]) == [str(key("r1"))]
        assert head.summary["total-records"] == "5"

    def test_a_second_time_there_is_nothing_to_do(self, table):
        table.undo(key("r1"))
        head = table.current_snapshot()
        assert table.undo(str(key("r1"))).outcome == "nothing"
        assert table.undo(dag_id="d", run_id="r1").outcome == "nothing"
        assert table.current_snapshot() == head

    def test_of_a_whole_run_in_one_commit(self, table):
        table.append(id_rows([10, 11]), operation_key=key("r1", "more"))
        before = len(table.snapshots())
        assert len(table.undo(dag_id="d", run_id="r1").undone_snapshot_ids) == 2
        assert ids(table) == list(range(5, 10))
        assert len(table.snapshots()) == before + 1

    def test_of_one_task_of_it(self, table):
        table.append(id_rows([10, 11]), operation_key=key("r1", "more"))
        table.undo(dag_id="d", run_id="r1", task_id="more")
        assert ids(table) == list(range(10))

    def test_of_one_index_of_a_mapped_task(self, table):
        for index in (0, 1):
            table.append(id_rows([20 + index]), operation_key=key("r3", map_index=index))
        result = table.undo(dag_id="d", run_id="r3", task_id="load", map_index=0)
        assert (result.removed_records, ids(table)) == (1, [*range(10), 21])
        with pytest.raises(NotFoundError, match="map index 7"):
            table.undo(dag_id="d", run_id="r3", task_id="load", map_index=7)

    def test_a_row_that_others_have_deleted_stays_deleted(self, table):
        if table.metadata.format_version == 1:
            return
        table.delete("id in (1, 7)", mode="merge-on-read")
        assert table.undo(key("r1")).removed_records == 4
        assert ids(table) == [5, 6, 8, 9]
        # The deletes of the file went with it.
        assert table.current_snapshot().summary["total-delete-files"] == "1"

    def test_opens_no_data_file(self, table):
        recorder = RecordingFileIO(table.io)
        table.io = recorder
        table.undo(key("r1"), dry_run=True)
        table.undo(key("r1"))
        opened = [location for _, location in recorder.calls if "/data/" in location]
        assert (opened, len(recorder.calls) > 2) == ([], True)
        assert ids(table) == list(range(5, 10))


class TestADryRun:
    """It says how many rows, which files, and who has read them."""

    def test_changes_nothing(self, table):
        head = table.current_snapshot()
        result = table.undo(key("r1"), dry_run=True)
        assert (result.outcome, result.removed_records, len(result.files)) == ("dry_run", 5, 1)
        assert table.refresh().current_snapshot() == head

    def test_names_later_readers_in_this_table_and_others(self, table):
        first, second = table.snapshots()
        other = Table.create(table.catalog, "db.report", schema={"id": "long"})

        def read(snapshot, **more):
            entry = {"catalog": "test", "table": "db.t", "table-uuid": table.metadata.table_uuid}
            inputs = {"orders": {**entry, "snapshot-id": str(snapshot.snapshot_id), **more}}
            return {"airflow.inputs": json.dumps(inputs)}

        def committed(run, summary):
            work = Work(other, operation_key=key(run, "report"))
            settings = work.settings(AppendRequest(rows=id_rows([1])), summary)
            other.commit(AppendFiles(other.io, files_of(other), settings, written_schema=other.schema()))

        def files_of(other):
            other.append(id_rows([1]))
            return [replace(next(iter(other.scan().plan_files())).file, file_path=f"{other.location}/data/{id(other)}")]

        committed("reads", read(second))
        committed("only-changes-after", read(second, **{"from-snapshot-id": str(first.snapshot_id)}))
        result = table.undo(key("r1"), dry_run=True)
        assert [(one["table"], one["run_id"]) for one in result.readers] == [("db.report", "reads")]


class TestAClearedTask:
    """A task that is cleared after its undo writes its rows again; one that was cleared before is undone with both."""

    def write(self, table, epoch, rows, **options):
        work = Work(table, operation_key=key("r1", epoch=epoch), try_number=epoch + 1)
        return append(work, AppendRequest(rows=id_rows(rows), **options))

    @pytest.mark.parametrize("on_rerun", ["replace", "append", "skip"])
    def test_writes_its_rows_again(self, table, on_rerun):
        table.undo(key("r1"))
        assert self.write(table, 1, range(5), on_rerun=on_rerun).outcome == "committed"
        assert ids(table) == list(range(10))
        table.undo(key("r1", epoch=1))
        assert ids(table) == list(range(5, 10))

    def test_the_rows_of_a_replaced_run_are_not_restored(self, table):
        self.write(table, 1, range(20, 25))
        assert ids(table) == [*range(5, 10), *range(20, 25)]
        table.undo(key("r1", epoch=1))
        assert ids(table) == list(range(5, 10))

    def test_a_run_is_undone_with_all_its_epochs(self, table):
        self.write(table, 1, range(20, 25), on_rerun="append")
        table.undo(dag_id="d", run_id="r1")
        assert ids(table) == list(range(5, 10))

    def test_a_task_that_undoes_is_found_and_cleared(self, table):
        request = UndoRequest(selection=Selection(dag_id="d", run_id="r1"))
        own = key("r1", "undo")
        first = undo(Work(table, operation_key=own), request)
        again = undo(Work(table, operation_key=own, try_number=2), request)
        assert (again.outcome, again.snapshot_id) == ("found", first.snapshot_id)
        assert (again.removed_records, again.undone_snapshot_ids) == (5, first.undone_snapshot_ids)
        cleared = undo(Work(table, operation_key=replace(own, epoch=1), try_number=3), request)
        assert cleared.outcome == "nothing"
        assert ids(table) == list(range(5, 10))


class TestAnUndoIsUndone:
    """By its own key: the rows are there again."""

    def test_and_the_run_can_be_undone_again(self, table):
        undo(Work(table, operation_key=key("u")), UndoRequest(selection=Selection(operation_key=str(key("r1")))))
        table.undo(key("u"))
        assert ids(table) == list(range(10))
        assert [one.undone_by is not None for one in table.runs()][-1] is False
        assert table.undo(key("r1")).outcome == "committed"
        assert ids(table) == list(range(5, 10))

    def test_not_after_the_run_was_cleared(self, table):
        """It has written its rows again: they would be there twice."""
        undo(Work(table, operation_key=key("u")), UndoRequest(selection=Selection(operation_key=str(key("r1")))))
        load_again(table)
        with pytest.raises(REFUSED, match="they would come back"):
            table.undo(key("u"))
        assert ids(table) == list(range(10))


class TestAfterACompaction:
    """The rows of a run lie in files with others: found by their row ids, which older versions do not have."""

    def test_in_version_3_its_rows_are_found(self, third):
        everything(third)
        before = lineage(third, "id >= 5").to_pylist()
        result = third.undo(key("r1"))
        assert ids(third) == list(range(5, 10))
        assert (result.removed_records, result.changed_data_files, result.removed_data_files) == (5, 1, 0)
        assert lineage(third).to_pylist() == before

    @pytest.mark.costly
    def test_after_deletes_updates_and_more_compactions(self, third):
        everything(third)
        third.delete("id in (0, 6)", mode="merge-on-read")
        third.append(id_rows([100]))
        everything(third)
        third.delete("id = 1", mode="copy-on-write")
        assert third.undo(key("r1")).removed_records == 3
        assert ids(third) == [5, 7, 8, 9, 100]

    def test_a_file_without_other_rows_is_removed(self, tmp_path):
        table = new_table(tmp_path, properties={"format-version": "3"})
        for number in range(3):
            table.append(id_rows([number]), operation_key=key("r1", f"t{number}"))
        everything(table)
        result = table.undo(dag_id="d", run_id="r1")
        assert (ids(table), result.removed_data_files, result.removed_records) == ([], 1, 3)

    @pytest.mark.parametrize("version", ["1", "2"])
    def test_in_older_versions_it_is_refused(self, tmp_path, version):
        table = new_table(tmp_path, properties={"format-version": version})
        table.append(id_rows([1]), operation_key=key())
        table.append(id_rows([2]))
        everything(table)
        head = table.current_snapshot()
        with pytest.raises(REFUSED, match="row ids only in format version 3; nothing was changed"):
            table.undo(key())
        assert table.refresh().current_snapshot() == head

    def test_a_refusal_names_a_snapshot_with_its_own_operation(self, tmp_path):
        table = new_table(tmp_path, properties={"format-version": "2"})
        for task in ("load", "more"):
            table.append(id_rows([1]), operation_key=key(task=task))
        table.append(id_rows([2]))
        everything(table)
        with pytest.raises(REFUSED) as caught:
            table.undo(dag_id="d", run_id="r1")
        first = table.snapshots()[0].snapshot_id
        assert str(caught.value).startswith(f"cannot undo the changes of snapshot {first} (operation {key()}): ")

    @pytest.mark.parametrize("version", ["1", "2"])
    def test_but_not_once_all_files_that_may_have_held_its_rows_are_gone(self, tmp_path, version):
        table = new_table(tmp_path, properties={"format-version": version})
        table.append(id_rows([1]), operation_key=key())
        table.overwrite(id_rows([7]))
        with pytest.raises(REFUSED, match="row ids only in format version 3; nothing was changed"):
            table.undo(key())
        table.delete("id = 7")
        table.append(id_rows([8]))
        assert (table.undo(key()).outcome, ids(table)) == ("nothing", [8])

    def test_a_compaction_of_the_run_itself_changes_no_row(self, third):
        work = replace(job_work(third), operation_key=key("r1", "compact"))
        compact(work, CompactRequest(options={"rewrite-all": True}))
        third.undo(dag_id="d", run_id="r1")
        assert ids(third) == list(range(5, 10))


MODES = ["copy-on-write", "merge-on-read"]


def load_again(table):
    """Clear the task of the first run: it replaces its rows, wherever they are."""
    work = Work(table, operation_key=key("r1", epoch=1), try_number=2)
    append(work, AppendRequest(rows=id_rows(range(5))))


class TestDeletedRows:
    """They are restored from the snapshot before, where that is provably right."""

    @pytest.mark.parametrize("mode", MODES)
    def test_come_back_with_their_row_ids(self, table, mode):
        if table.metadata.format_version == 1 and mode == "merge-on-read":
            return
        before = lineage(table).to_pylist() if table.metadata.format_version == 3 else None
        table.delete("id in (1, 2, 7)", mode=mode, operation_key=key("clean"))
        table.append(id_rows([50]))
        result = table.undo(key("clean"))
        assert ids(table) == [*range(10), 50]
        assert (result.removed_records, result.restored_records) == (0, 3)
        if before is not None:
            assert lineage(table, "id < 50").to_pylist() == before

    @pytest.mark.parametrize("mode", MODES)
    def test_with_the_deletes_that_were_there_before(self, table, mode):
        if table.metadata.format_version == 1:
            return
        table.delete("id = 3", mode="merge-on-read")
        table.delete("id in (1, 2)", mode=mode, operation_key=key("clean"))
        table.undo(key("clean"))
        assert ids(table) == [0, 1, 2, *range(4, 10)]

    def test_overwritten_rows(self, table):
        table.overwrite(id_rows([3, 4]), "id < 5", operation_key=key("fix"))
        result = table.undo(key("fix"))
        assert ids(table) == list(range(10))
        assert (result.removed_records, result.restored_records) == (2, 5)

    def test_not_after_another_writer_has_changed_the_partition(self, table):
        table.delete("id = 1", operation_key=key("clean"))
        table.delete("id = 8")
        with pytest.raises(REFUSED, match=r"has changed rows of the same partitions since.*roll the branch back"):
            table.undo(key("clean"))

    def test_but_after_one_has_changed_another_partition(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "p": "int"}, partition_by=["p"])
        table.append(pa.table({"id": [1, 2, 3, 4], "p": pa.array([0, 0, 1, 1], pa.int32())}))
        table.delete("id = 1", operation_key=key("clean"))
        table.delete("id = 3")
        table.undo(key("clean"))
        assert ids(table) == [1, 2, 4]

    @pytest.mark.parametrize("how", ["delete", "overwrite"])
    def test_not_after_their_run_was_cleared(self, table, how):
        """It has written them again: they would be there twice."""
        if how == "delete":
            table.delete("id < 5", operation_key=key("clean"))
        else:
            table.overwrite(id_rows([3]), "id < 5", operation_key=key("clean"))
        load_again(table)
        before = ids(table)
        with pytest.raises(REFUSED, match="has replaced or undone since: they would come back"):
            table.undo(key("clean"))
        assert ids(table) == before

    @pytest.mark.parametrize("mode", MODES)
    def test_not_after_their_run_was_cleared_if_they_were_compacted_before(self, third, mode):
        everything(third)
        third.delete("id < 5", mode=mode, operation_key=key("clean"))
        load_again(third)
        assert ids(third) == list(range(10))
        with pytest.raises(REFUSED, match="they would come back"):
            third.undo(key("clean"))

    def test_but_after_another_run_was_cleared(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "p": "int"}, partition_by=["p"])
        in_partition = lambda number: pa.table({"id": [number], "p": pa.array([number], pa.int32())})  # noqa: E731
        table.append(in_partition(1), operation_key=key("r1"))
        table.append(in_partition(2), operation_key=key("r2"), on_rerun="replace")
        table.delete("p = 1", operation_key=key("clean"))
        table.append(in_partition(2), operation_key=key("r2", epoch=1), on_rerun="replace")
        table.undo(key("clean"))
        assert ids(table) == [1, 2]

    def test_not_after_their_run_was_undone(self, tmp_path):
        """One row of the run was left, in another partition."""
        table = new_table(tmp_path, schema={"id": "long", "p": "int"}, partition_by=["p"])
        rows = pa.table({"id": [1, 2], "p": pa.array([0, 1], pa.int32())})
        table.append(rows, operation_key=key("r1"))
        table.delete("p = 0", operation_key=key("clean"))
        table.undo(key("r1"))
        with pytest.raises(REFUSED, match="they would come back"):
            table.undo(key("clean"))
        assert ids(table) == []

    def test_not_if_their_run_is_cleared_meanwhile(self, tmp_path):
        catalog = MemoryCatalog()
        table = Table.create(catalog, "db.t", schema={"id": "long"})
        table.append(id_rows(range(5)), operation_key=key("r1"))
        table.delete("id < 5", operation_key=key("clean"))
        rival = lambda catalog, name: load_again(Table.load(catalog, name))  # noqa: E731
        racing = Table.load(FaultyCatalog(catalog, [Fault.CONFLICT], rival=rival), "db.t")
        with pytest.raises(REFUSED, match="they would come back"):
            racing.undo(key("clean"))
        assert ids(table.refresh()) == list(range(5))

    def test_not_after_a_compaction(self, third):
        third.delete("id = 1", mode="merge-on-read", operation_key=key("clean"))
        everything(third)
        with pytest.raises(REFUSED, match="was changed since"):
            third.undo(key("clean"))

    def test_not_after_their_files_were_deleted(self, table):
        table.delete("id = 1", mode="copy-on-write", operation_key=key("clean"))
        kept = table.current_snapshot().snapshot_id
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != kept]
        expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=tuple(old)))
        with pytest.raises(REFUSED, match="snapshots were expired"):
            table.undo(key("clean"))


class TestExpiredSnapshots:
    """What is not known any more is not guessed."""

    def test_a_run_of_which_the_history_tells_nothing_is_refused(self, table):
        expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=(table.snapshots()[0].snapshot_id,)))
        for selection in ({"operation_key": key("r1")}, {"dag_id": "d", "run_id": "r1"}, {"operation_key": key("r2")}):
            with pytest.raises(REFUSED, match="does not surely reach back"):
                table.undo(**selection)
        assert ids(table) == list(range(10))

    def test_a_key_of_ones_own_tells_with_its_start(self, table):
        own = key("r3", started_ms=now_ms())
        table.append(id_rows([20]), operation_key=own)
        expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=(table.snapshots()[0].snapshot_id,)))
        table.undo(own)
        assert ids(table) == list(range(10))

    def test_a_younger_run_is_undone_if_its_epoch_tells_its_start(self, table):
        start_us = (table.snapshots()[1].timestamp_ms + 1) * 1000
        table.append(id_rows([20]), operation_key=key("r3", epoch=start_us * 10**8))
        expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=(table.snapshots()[0].snapshot_id,)))
        table.undo(dag_id="d", run_id="r3")
        assert ids(table) == list(range(10))


class TestBranches:
    """An undo concerns the history of one branch."""

    def test_of_a_branch(self, table):
        table.create_branch("audit")
        table.append(id_rows([20]), branch="audit", operation_key=key("r3"))
        assert table.undo(key("r3")).outcome == "nothing"
        table.undo(key("r1"), branch="audit")
        assert (ids(table, ref="audit"), ids(table)) == ([*range(5, 10), 20], list(range(10)))

    def test_a_published_run(self, table):
        table.create_branch("audit")
        written = table.append(id_rows([20]), branch="audit", operation_key=key("r3"))
        table.append(id_rows([30]))
        table.cherry_pick(written.snapshot_id)
        assert ids(table) == [*range(10), 20, 30]
        table.undo(key("r3"))
        assert ids(table) == [*range(10), 30]

    @pytest.mark.costly
    def test_one_of_several_works_that_were_published_together(self, table):
        """The rows of the others would go with its own: the run is undone as a whole, or not."""
        table.create_branch("wap")
        for index in (0, 1):
            table.append(id_rows([20 + index]), branch="wap", operation_key=key("r3", map_index=index))
        request = PublishRequest(snapshot_id=table.metadata.ref_snapshot("wap").snapshot_id, branch="wap")
        table.append(id_rows([30]))
        assert publish(Work(table.refresh(), operation_key=key("r3", "publish")), request).how == "reapplied"
        for one in (
            {"operation_key": key("r3", map_index=1)},
            {"dag_id": "d", "run_id": "r3", "task_id": "load", "map_index": 0},
        ):
            with pytest.raises(REFUSED, match="published together"):
                table.undo(**one)
        assert ids(table) == [*range(10), 20, 21, 30]
        table.undo(dag_id="d", run_id="r3", task_id="load")
        assert ids(table) == [*range(10), 30]

    def test_a_run_that_was_rolled_back_is_not_there(self, table):
        table.rollback_to_snapshot(table.snapshots()[0].snapshot_id)
        assert table.undo(key("r2")).outcome == "nothing"


class TestBadInput:
    """One clear error, and nothing is committed."""

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({}, InvalidInputError),
            ({"dag_id": "d"}, InvalidInputError),
            ({"dag_id": "d", "run_id": "r1", "map_index": 0}, InvalidInputError),
            ({"operation_key": "nonsense"}, InvalidInputError),
            ({"operation_key": key(), "dag_id": "d", "run_id": "r1"}, InvalidInputError),
            ({"dag_id": "d", "run_id": "r9"}, NotFoundError),
            ({"operation_key": key("r1", epoch=7)}, NotFoundError),
            ({"operation_key": key(), "branch": "nowhere"}, NotFoundError),
        ],
    )
    def test_is_refused(self, third, arguments, error):
        with pytest.raises(error):
            third.undo(**arguments)

    def test_runs_of_two_installations(self, third):
        third.append(id_rows([20]), operation_key=key("r1", installation="other"))
        with pytest.raises(REFUSED, match="several Airflow installations"):
            third.undo(dag_id="d", run_id="r1")


class TestBesideOtherWriters:
    """Appends that land meanwhile are kept; after any other commit the undo is planned again."""

    @pytest.mark.costly
    def test_commits_between_the_plan_and_the_swap(self, third, monkeypatch):
        rounds = []
        plan = module.plan_undo

        def interrupted(*args):
            found = plan(*args)
            rounds.append(len(rounds))
            rival = Table.load(third.catalog, "db.t")
            if len(rounds) == 1:
                everything(rival)  # the planned files are gone
            if len(rounds) == 2:
                rival.append(id_rows([40]))
            return found

        monkeypatch.setattr(module, "plan_undo", interrupted)
        third.undo(key("r1"))
        assert (ids(third), len(rounds)) == ([*range(5, 10), 40], 2)

    def test_a_lost_answer_is_found(self, third):
        own = key("u", "undo")
        request = UndoRequest(selection=Selection(operation_key=str(key("r1"))))
        undo(Work(Table.load(third.catalog, "db.t"), operation_key=own), request)
        # This process still has the old table: its commit meets the landed one.
        assert undo(Work(third, operation_key=own), request).outcome == "found"
        assert ids(third) == list(range(5, 10))
