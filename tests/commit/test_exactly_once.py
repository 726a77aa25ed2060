"""A task commits exactly once: retries find their commit, a cleared task replaces what it committed before."""

import dataclasses
import pathlib
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.engine import commit
from airflow_iceberg.commit.operation_key import OperationKey, epoch_of
from airflow_iceberg.commit.runs.replaced import Replaced
from airflow_iceberg.commit.settings import now_ms, settings_for
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.errors import (
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    StorageError,
)
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshots
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest
from airflow_iceberg.operations.compact import compact as rewrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.append_steps import commit_append, discard, find_append, plan_append, read_result
from tests.support.builders import id_rows
from tests.support.builders import ids as ids_of

KEY = OperationKey(dag_id="load", run_id="scheduled__2026-01-01", task_id="append")


@pytest.fixture
def catalog(tmp_path):
    catalog = load_catalog(
        "prod", type="sql", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=(tmp_path / "wh").as_uri()
    )
    catalog.create_namespace("db")
    Table.create(catalog, "db.t", schema={"id": "long"})
    return catalog


@pytest.fixture
def load(catalog, tmp_path):
    """Run a whole append as a task does: look, plan, job, commit."""

    def run(*ids, key=KEY, on_rerun="replace", try_number=1, between=lambda: None):
        table = Table.load(catalog, "db.t")
        found = find_append(table, key, on_rerun=on_rerun)
        if found is not None:
            return found
        source = tmp_path / f"source-{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(id_rows(ids), source)
        plan = plan_append(table, Source.from_files(source.as_uri()), operation_key=key, try_number=try_number)
        run_local(plan, table.io)
        between()
        result = read_result(table, plan)
        return commit_append(table, plan, result, operation_key=key, try_number=try_number, on_rerun=on_rerun)

    return run


@pytest.fixture
def ids(catalog):
    return lambda: ids_of(Table.load(catalog, "db.t"))


def told(caplog):
    """Return what was said of commits; a job tells its progress, too, where the log has that."""
    ours = (record for record in caplog.records if record.name.startswith("airflow_iceberg.commit"))
    return [record.getMessage() for record in ours]


def other(task_id="other", **changes):
    return dataclasses.replace(KEY, task_id=task_id, **changes)


def epoch(number, **changes):
    return dataclasses.replace(KEY, epoch=number, **changes)


class TestARetry:
    """The key is constant over automatic retries: what an earlier try committed is found, not done again."""

    def test_a_retried_task_finds_its_own_commit(self, load, ids):
        first = load(1, 2)
        again = load(1, 2, try_number=2)
        assert (first.outcome, again.outcome) == ("committed", "found")
        assert again.snapshot_id == first.snapshot_id
        assert (again.added_records, again.added_data_files) == (2, 1)
        assert ids() == [1, 2]

    def test_it_finds_it_under_other_commits(self, load, ids):
        first = load(1)
        load(2, key=other())
        assert load(1, try_number=2).snapshot_id == first.snapshot_id
        assert ids() == [1, 2]

    def test_two_processes_that_do_the_same_work_commit_once(self, load, ids):
        inner = {}
        outer = load(1, between=lambda: inner.update(result=load(1, try_number=2)))
        assert inner["result"].outcome == "committed"
        assert outer.outcome == "found"
        assert outer.snapshot_id == inner["result"].snapshot_id
        assert ids() == [1]

    def test_another_run_is_other_work(self, load, ids):
        load(1)
        assert load(1, key=dataclasses.replace(KEY, run_id="scheduled__2026-01-02")).outcome == "committed"
        assert ids() == [1, 1]

    @pytest.mark.costly
    def test_mapped_tasks_are_other_work(self, load, ids):
        for index in range(3):
            load(index, key=dataclasses.replace(KEY, map_index=index))
        assert ids() == [0, 1, 2]

    @pytest.mark.costly
    def test_rows_that_were_rolled_back_are_loaded_again(self, load, ids, catalog):
        first = load(1, key=other("first"))
        load(2)
        Table.load(catalog, "db.t").rollback_to_snapshot(first.snapshot_id)
        assert load(2, try_number=2).outcome == "committed"
        assert ids() == [1, 2]


class TestClearAndRunAgain:
    """A person cleared the task: the rows of the earlier run go in the commit in which the new ones come."""

    @pytest.mark.costly
    def test_the_rows_are_replaced_in_one_commit(self, load, ids, catalog):
        load(1, 2)
        load(9, key=other())
        result = load(3, key=epoch(1))
        assert ids() == [3, 9]
        assert (result.operation, result.deleted_records, result.added_records) == ("overwrite", 2, 1)
        assert len(Table.load(catalog, "db.t").snapshots()) == 3

    @pytest.mark.costly
    def test_the_log_says_so_and_only_then(self, load, ids, catalog, caplog):
        caplog.set_level("INFO", "airflow_iceberg.commit")
        first = load(1, 2)
        load(1, 2, try_number=2)
        assert told(caplog) == []
        load(3, key=epoch(1))
        assert [line.partition(": ")[2] for line in told(caplog)] == [
            (
                "the task was cleared, so its new rows replaced those of its earlier run: 2 rows in 1 data file, "
                f"committed in snapshot {first.snapshot_id}"
            )
        ]
        caplog.clear()
        expire(catalog, first.snapshot_id)
        load(4, key=epoch(2))
        (line,) = told(caplog)
        assert ": 1 row in 1 data file, committed in snapshot " in line

    @pytest.mark.costly
    def test_a_second_clear_replaces_the_second_run(self, load, ids):
        for number in range(4):
            load(number, key=epoch(number))
        assert ids() == [3]

    def test_a_retry_after_the_clear_finds_the_replacement(self, load, ids):
        load(1)
        second = load(2, key=epoch(1))
        assert load(2, key=epoch(1), try_number=2).snapshot_id == second.snapshot_id
        assert ids() == [2]

    def test_append_adds_the_rows_again_when_that_is_asked_for(self, load, ids):
        load(1)
        assert load(2, key=epoch(1), on_rerun="append").operation == "append"
        assert ids() == [1, 2]

    def test_skip_leaves_what_was_committed_before_as_it_is(self, load, ids):
        first = load(1, key=epoch(1), on_rerun="skip")
        again = load(2, key=epoch(2), on_rerun="skip")
        assert (first.outcome, again.outcome, again.snapshot_id) == ("committed", "skipped", first.snapshot_id)
        assert ids() == [1]

    def test_an_empty_source_takes_the_earlier_rows_away(self, load, ids):
        load(1, 2)
        result = load(key=epoch(1))
        assert (result.outcome, result.operation, result.deleted_records) == ("committed", "delete", 2)
        assert ids() == []

    def test_an_unknown_choice_is_refused(self, load):
        with pytest.raises(InvalidInputError, match="unknown on_rerun 'merge'; one of replace, append, skip"):
            load(1, on_rerun="merge")

    def test_a_run_that_was_overtaken_by_a_clear_commits_nothing(self, load, ids):
        with pytest.raises(IncompatibleChangeError, match="was superseded"):
            load(1, between=lambda: load(2, key=epoch(1)))
        assert ids() == [2]


def expire(catalog, *snapshot_ids):
    state = catalog.load("db.t")
    catalog.commit(state, Change(updates=(RemoveSnapshots(snapshot_ids=snapshot_ids),), requirements=()))


def compact(catalog):
    """Write the rows of all files into one, as a compaction of another writer does; returns the snapshot's id."""
    table = Table.load(catalog, "db.t")
    state = catalog.load("db.t")
    live = frozenset(table.inspect.files()["file_path"].to_pylist())
    files = write_rows(table.io, table.metadata, table.scan().to_arrow(), file_prefix="compacted")
    action = AppendFiles(
        table.io,
        files,
        settings_for(table.metadata),
        written_schema=table.schema(),
        earlier=SimpleNamespace(
            replaced=lambda metadata: Replaced(paths=live), log_replaced=lambda table, branch: None, mark=None
        ),
    )
    commit(catalog, state, action)
    return action.snapshot_id


class TestARunThatIsNotOurs:
    """Keys name the installation and the run's start: neither another Airflow nor a deleted run is taken for this."""

    @pytest.mark.costly
    def test_two_installations_write_their_own_rows(self, load, ids, caplog):
        for name, row in (("prod", 1), ("staging", 2)):
            key = dataclasses.replace(KEY, installation=name)
            assert load(row, key=key).outcome == "committed"
            assert load(row, key=key, try_number=2).outcome == "found"
        assert ids() == [1, 2]
        assert load(3, key=dataclasses.replace(KEY, installation="prod", epoch=1), try_number=2).deleted_records == 1
        assert ids() == [2, 3]

    def test_the_log_says_that_the_other_rows_are_kept(self, load, caplog):
        load(1, key=dataclasses.replace(KEY, installation="prod"))
        load(2, key=dataclasses.replace(KEY, installation="staging"))
        (line,) = [line for line in caplog.messages if "another Airflow installation" in line]
        assert (
            f"its operation key is {KEY.run}/prod/append/-1/0, that of this task is {KEY.run}/staging/append/-1/0; "
            in line
        )
        assert "[airflow_iceberg] installation_id" in line

    @pytest.mark.costly
    def test_a_run_that_was_created_again_writes_its_rows(self, load, ids, catalog):
        start = 1_795_000_000_000_001
        first, again = (run_of(start), run_of(start + 60_000_000))
        load(1, 2, key=first)
        load(9, key=other())
        assert load(3, key=again).deleted_records == 2
        assert ids() == [3, 9]

    def test_also_when_the_rows_of_the_deleted_run_are_gone(self, load, ids, catalog):
        start = 1_795_000_000_000_001
        load(1, key=run_of(start))
        Table.load(catalog, "db.t").delete("true")
        assert load(1, key=run_of(start + 60_000_000)).outcome == "committed"
        assert ids() == [1]


def run_of(start, *, clears=0, max_tries=2):
    epoch_number = epoch_of(started_us=start, clear_number=clears, max_tries=max_tries)
    return dataclasses.replace(KEY, installation="prod", epoch=epoch_number, is_cleared=clears > 0, older_epoch=0)


class TestWhenAirflowDoesNotTell:
    """The run counts its clears, not those of a task: after the clear of another task, an append is not repeated."""

    def test_an_append_is_found(self, load, ids, caplog):
        first = load(1, key=run_of(7), on_rerun="append")
        again = load(1, key=run_of(7, clears=1), try_number=2, on_rerun="append")
        assert (again.outcome, again.snapshot_id) == ("found", first.snapshot_id)
        assert "to append them, clear this task again" in caplog.text
        assert load(2, key=run_of(7, clears=2, max_tries=4), try_number=3, on_rerun="append").outcome == "committed"
        assert ids() == [1, 2]

    def test_rows_that_are_replaced_are_there_once_either_way(self, load, ids):
        load(1, key=run_of(7))
        assert load(1, key=run_of(7, clears=1), try_number=2).outcome == "committed"
        assert ids() == [1]


class TestKeysOfTheFirstForm:
    """A task that began before the provider was upgraded finds its commit, by a key that has no installation."""

    def test_a_retry_finds_it(self, load, ids):
        first = load(1)
        assert load(1, key=run_of(7), try_number=2).snapshot_id == first.snapshot_id

    @pytest.mark.costly
    def test_a_clear_replaces_its_rows(self, load, ids):
        load(1, 2)
        load(9, key=other())
        cleared = dataclasses.replace(run_of(7, clears=1, max_tries=3), older_epoch=1)
        load(3, key=cleared)
        assert ids() == [3, 9]

    @pytest.mark.costly
    def test_also_when_its_snapshot_has_expired(self, load, ids, catalog):
        first = load(1, 2)
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        load(1, 2, key=run_of(7), try_number=2)
        assert ids() == [1, 2, 9]


class TestFilesThatAreGone:
    """What is in the branch's history is done, whatever became of its rows; what was rolled back is done again."""

    @pytest.mark.costly
    def test_the_log_names_the_snapshot_that_removed_them(self, load, ids, catalog, caplog):
        first = load(1)
        Table.load(catalog, "db.t").append(id_rows([8]))
        Table.load(catalog, "db.t").delete("id = 1", snapshot_properties={"engine-name": "vacuum"})
        removed = Table.load(catalog, "db.t").current_snapshot()
        assert load(1, try_number=2).outcome == "found"
        (line,) = told(caplog)
        assert f"committed snapshot {first.snapshot_id} to branch main, and since then snapshot " in line
        assert f"{removed.snapshot_id} (delete, by " in line
        assert "has removed 1 of its 1 data files" in line
        assert ids() == [8]
        load(1, key=epoch(1))
        assert ids() == [1, 8]

    @pytest.mark.costly
    def test_a_compaction_is_no_loss(self, load, catalog, caplog):
        load(1)
        load(2, key=other())
        table = Table.load(catalog, "db.t")
        rewrite(
            Work(table, run=lambda plan: run_local(plan, table.io)), CompactRequest(options={"rewrite-all": "true"})
        )
        assert load(1, try_number=2).outcome == "found"
        assert told(caplog) == []

    @pytest.mark.costly
    def test_a_rollback_is_named(self, load, catalog, caplog):
        first = load(1, key=other("first"))
        lost = load(2)
        Table.load(catalog, "db.t").rollback_to_snapshot(first.snapshot_id)
        load(2, try_number=2)
        (line,) = told(caplog)
        assert f"has committed snapshot {lost.snapshot_id}, which is not in the history of branch main" in line


class TestAClockThatIsBehind:
    """A worker's clock may be behind that of the scheduler, which has started the run."""

    @pytest.mark.costly
    @pytest.mark.parametrize("behind_ms", [1, 90_000, 3 * 3_600_000])
    def test_an_expired_commit_is_not_doubled(self, load, ids, catalog, behind_ms):
        key = dataclasses.replace(KEY, run_after_ms=now_ms() + behind_ms, started_ms=now_ms() + behind_ms)
        first = load(1, 2, key=key)
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        load(1, 2, key=key, try_number=2)
        assert ids() == [1, 2, 9]

    def test_one_that_is_days_behind_commits_nothing(self, load, ids):
        key = dataclasses.replace(KEY, started_ms=now_ms() + 49 * 3_600_000)
        with pytest.raises(
            StorageError, match=r"is 4[89] hours behind the start of the DAG run .* nothing was committed"
        ):
            load(1, key=key)
        assert ids() == []


class TestACallThatIsRepeated:
    """`Table.append` has no number of a try: each call with a key may be the second one."""

    def test_after_expiry(self, catalog, ids):
        first = Table.load(catalog, "db.t").append(id_rows([1, 2]), operation_key=KEY)
        Table.load(catalog, "db.t").append(id_rows([9]))
        expire(catalog, first.snapshot_id)
        Table.load(catalog, "db.t").append(id_rows([1, 2]), operation_key=KEY)
        assert ids() == [1, 2, 9]

    @pytest.mark.costly
    def test_after_expiry_and_compaction_the_start_of_the_work_tells_enough(self, catalog, ids):
        first = Table.load(catalog, "db.t").append(id_rows([9]))
        compact(catalog)
        expire(catalog, first.snapshot_id)
        with pytest.raises(IncompatibleChangeError, match="a key of your own tells more with started_ms"):
            Table.load(catalog, "db.t").append(id_rows([1]), operation_key=KEY)
        key = dataclasses.replace(KEY, started_ms=now_ms() + 1)
        assert Table.load(catalog, "db.t").append(id_rows([1]), operation_key=key).outcome == "committed"
        assert Table.load(catalog, "db.t").append(id_rows([1]), operation_key=key).outcome == "found"
        assert ids() == [1, 9]

    @pytest.mark.parametrize("method", ["overwrite", "dynamic_partition_overwrite"])
    def test_overwrites_after_expiry(self, catalog, ids, method):
        table = Table.load(catalog, "db.t")
        first = getattr(table, method)(id_rows([1, 2]), operation_key=KEY)
        Table.load(catalog, "db.t").append(id_rows([9]), operation_key=other())
        expire(catalog, first.snapshot_id)
        getattr(table.refresh(), method)(id_rows([1, 2]), operation_key=KEY)
        assert ids() == [1, 2]


class TestAClearedTaskThatStillRuns:
    """Both the old try and the new one commit: the rows of the new one are there once, in either order."""

    def test_the_old_one_commits_first(self, load, ids):
        load(2, key=epoch(1), between=lambda: load(1))
        assert ids() == [2]

    def test_the_old_one_commits_last(self, load, ids):
        with pytest.raises(IncompatibleChangeError, match="was superseded"):
            load(1, between=lambda: load(2, key=epoch(1)))
        assert ids() == [2]

    @pytest.mark.costly
    @pytest.mark.parametrize("try_number", [1, 2])
    def test_the_commit_of_the_new_one_has_expired_by_then(self, load, ids, catalog, try_number):
        begin = load(8, key=other("first"))

        def meanwhile():
            newer = load(2, key=epoch(1, run_after_ms=now_ms() + 1), try_number=3)
            load(9, key=other())
            expire(catalog, begin.snapshot_id, newer.snapshot_id)

        with pytest.raises(IncompatibleChangeError, match=r"was superseded: .* its next run has added file"):
            load(1, between=meanwhile, try_number=try_number)
        assert ids() == [2, 8, 9]

    @pytest.mark.costly
    def test_the_commit_of_a_later_try_has_expired_by_then(self, load, ids, catalog):
        begin = load(8, key=other("first"))

        def meanwhile():
            newer = load(1, try_number=2)
            load(9, key=other())
            expire(catalog, begin.snapshot_id, newer.snapshot_id)

        with pytest.raises(IncompatibleChangeError, match=r"was superseded: try 2 of the same task has added file"):
            load(1, between=meanwhile, try_number=1)
        assert ids() == [1, 8, 9]

    def test_the_new_one_was_to_be_skipped_if_the_old_one_commits(self, load, ids):
        with pytest.raises(StalePlanError, match="on_rerun is 'skip'"):
            load(2, key=epoch(1), on_rerun="skip", between=lambda: load(1))
        assert load(2, key=epoch(1), on_rerun="skip", try_number=3).outcome == "skipped"
        assert ids() == [1]


class TestSkippingAfterExpiry:
    """`on_rerun="skip"` skips work whose snapshot has expired, as long as its files tell of it."""

    def test_the_files_tell(self, load, ids, catalog):
        first = load(1, 2)
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        again = load(3, key=epoch(1), on_rerun="skip")
        assert (again.outcome, again.snapshot_id, again.added_records, again.added_data_files) == (
            "skipped",
            None,
            2,
            1,
        )
        assert ids() == [1, 2, 9]

    def test_without_them_it_is_refused(self, load, ids, catalog):
        first = load(8, key=other("first"))
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        with pytest.raises(IncompatibleChangeError, match="cannot tell which rows"):
            load(3, key=epoch(1), on_rerun="skip")
        assert ids() == [8, 9]


class TestARetryAfterExpiry:
    """The commit of an earlier try may be expired before the next try asks: the names of its files still tell."""

    @pytest.mark.costly
    @pytest.mark.parametrize("on_rerun", ["replace", "append", "skip"])
    def test_the_rows_are_not_doubled(self, load, ids, catalog, on_rerun):
        first = load(1, 2)
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        load(1, 2, try_number=2, on_rerun=on_rerun)
        assert ids() == [1, 2, 9]

    @pytest.mark.costly
    def test_a_commit_that_was_compacted_as_well_is_not_doubled(self, load, ids, catalog):
        first = load(1)
        second = load(9, key=other())
        compaction = compact(catalog)
        load(8, key=other("third"))
        expire(catalog, first.snapshot_id, second.snapshot_id, compaction)
        with pytest.raises(IncompatibleChangeError, match="may hold rows of an earlier try"):
            load(1, try_number=2)
        assert ids() == [1, 8, 9]

    @pytest.mark.costly
    def test_history_that_reaches_back_to_the_start_of_the_run_tells_enough(self, load, ids, catalog):
        first = load(1, key=other())
        second = load(9, key=other("another"))
        expire(catalog, first.snapshot_id)
        compact(catalog)
        started = Table.load(catalog, "db.t").metadata.snapshot(second.snapshot_id).timestamp_ms + 1
        load(2, key=dataclasses.replace(KEY, run_after_ms=1, started_ms=started), try_number=2)
        assert ids() == [1, 2, 9]

    @pytest.mark.costly
    def test_a_first_try_opens_no_manifest_to_find_that_out(self, load, ids, catalog):
        first = load(1)
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        table = Table.load(catalog, "db.t")
        path = table.io.filesystem(table.inspect.manifests()["path"].to_pylist()[0])[1]
        pathlib.Path(path).rename(f"{path}.away")
        assert load(5, key=other("new")).outcome == "committed"
        pathlib.Path(f"{path}.away").rename(path)
        assert ids() == [1, 5, 9]


class TestWhatCannotBeTold:
    """Where the earlier rows cannot be told apart any more, nothing is committed and the way out is named."""

    @pytest.mark.costly
    def test_an_expired_run_is_known_by_the_names_of_its_files(self, load, ids, catalog, caplog):
        first = load(1)
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        caplog.set_level("INFO", "airflow_iceberg.commit")
        load(2, key=epoch(1))
        assert ids() == [2, 9]
        (line,) = told(caplog)
        assert line.endswith(": 1 row in 1 data file, committed in a snapshot that has expired")

    @pytest.mark.costly
    def test_history_that_does_not_reach_back_is_refused(self, load, ids, catalog):
        first = load(8, key=other("first"))
        load(9, key=other())
        expire(catalog, first.snapshot_id)
        with pytest.raises(IncompatibleChangeError, match="on_rerun='append'"):
            load(2, key=epoch(1))
        assert load(2, key=epoch(1), on_rerun="append").outcome == "committed"
        assert ids() == [2, 8, 9]

    @pytest.mark.costly
    def test_history_that_reaches_back_to_the_run_tells_enough(self, load, ids, catalog):
        first = load(8, key=other("first"))
        second = load(9, key=other())
        expire(catalog, first.snapshot_id)
        started = Table.load(catalog, "db.t").metadata.snapshot(second.snapshot_id).timestamp_ms + 1
        assert load(2, key=epoch(1, run_after_ms=started)).outcome == "committed"
        assert ids() == [2, 8, 9]


class TestRewrittenFiles:
    """Where other rows were written into one file with those of the earlier run, a clear is refused, in any version."""

    @pytest.fixture(params=[1, 2, 3])
    def version(self, request, catalog):
        catalog.drop_table("db.t")
        Table.create(catalog, "db.t", schema={"id": "long"}, properties={"format-version": str(request.param)})
        return request.param

    @pytest.mark.costly
    def test_the_history_tells_who_did_it(self, load, ids, version, catalog):
        load(1)
        load(9, key=other())
        snapshot_id = compact(catalog)
        load(5, key=other("third"))
        with pytest.raises(IncompatibleChangeError, match=f"snapshot {snapshot_id} .* rewrote its files"):
            load(2, key=epoch(1))
        assert ids() == [1, 5, 9]

    @pytest.mark.costly
    def test_what_was_rewritten_before_the_run_does_not_matter(self, load, ids, version, catalog):
        load(9, key=other())
        compact(catalog)
        load(1)
        load(2, key=epoch(1))
        assert ids() == [2, 9]

    @pytest.mark.costly
    def test_when_the_history_is_gone_a_file_of_unknown_origin_is_enough(self, load, ids, version, catalog):
        """A compaction, expired as well, could have carried a part of the rows into the younger file."""
        first = load(1)
        second = Table.load(catalog, "db.t").append(id_rows([7]))
        load(9, key=other())
        expire(catalog, first.snapshot_id, second.snapshot_id)
        with pytest.raises(IncompatibleChangeError, match="is younger than its files"):
            load(2, key=epoch(1))
        assert ids() == [1, 7, 9]


class TestWhatAFailedTryLeaves:
    """A try that fails leaves the table as it was, and no documents of a finished job pile up."""

    def test_a_finished_job_leaves_no_documents(self, load, catalog):
        load(1)
        table = Table.load(catalog, "db.t")
        assert list(table.io.list(f"{table.location}/.staging")) == []

    def test_a_job_that_died_has_no_result(self, catalog, tmp_path):
        table = Table.load(catalog, "db.t")
        plan = plan_append(table, Source.from_files((tmp_path / "x.parquet").as_uri()), operation_key=KEY)
        with pytest.raises(StalePlanError, match="ended without a result"):
            read_result(table, plan)

    def test_a_failed_job_raises_its_own_error(self, catalog, tmp_path):
        table = Table.load(catalog, "db.t")
        plan = plan_append(table, Source.from_files((tmp_path / "missing.parquet").as_uri()), operation_key=KEY)
        run_local(plan, table.io)
        with pytest.raises(NotFoundError, match=r"missing\.parquet"):
            read_result(table, plan)
        discard(table, plan)
        assert list(table.io.list(f"{table.location}/.staging")) == []
        assert table.refresh().current_snapshot() is None
