"""Work whose process ends while its job runs: a later one goes on, whatever others have done to the table meanwhile."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import FormatError, IcebergError, IncompatibleChangeError, InvalidInputError, StalePlanError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.deferral.jobs import LATEST_S
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import MOST_ROUNDS, Work
from airflow_iceberg.table import Table
from tests.support.builders import age, data_locations, folder_of, job_work, reachable, staged
from tests.support.deferred import DeferredRun

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([one for one, _ in pairs], pa.int64()), "v": [text for _, text in pairs]})


def content(table: Table) -> list[tuple[int, str]]:
    found = table.refresh().scan().to_arrow().sort_by("id")
    return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def expire(table: Table, older_than_ms: int = 2**52) -> None:
    expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=older_than_ms, retain_last=1))


def expire_all_but_a_new_one(table: Table) -> None:
    table.refresh().append(rows((0, "new")))
    expire(table)


@pytest.fixture
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A catalog with a pointer that is swapped, or of another kind."""
    kind = getattr(request, "param", "sql")
    options = {"uri": f"sqlite:///{tmp_path}/catalog.db"} if kind == "sql" else {}
    made = load_catalog("test", type=kind, warehouse=(tmp_path / "lake").as_uri(), **options)
    made.create_namespace("db")
    return made


@pytest.fixture
def table(catalog: Any) -> Table:
    """Two files of two rows."""
    made = Table.create(catalog, "db.t", schema={"id": "long", "v": "string"})
    made.append(rows((1, "a"), (2, "a")))
    made.append(rows((3, "a"), (4, "a")))
    return made


@pytest.fixture
def run(catalog: Any, table: Table) -> DeferredRun:
    return DeferredRun(lambda: Table.load(catalog, "db.t"), key=KEY)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    pq.write_table(rows((4, "b"), (5, "b")), tmp_path / "source.parquet")
    return Source.from_files(str(tmp_path / "source.parquet"))


@pytest.fixture
def works(source: Source) -> dict[str, tuple[Callable[..., Any], Any, list[tuple[int, str]]]]:
    """Every operation that reads or writes rows in a job: its function, its request, and what the table has then."""
    old = [(1, "a"), (2, "a"), (3, "a"), (4, "a")]
    upsert = MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb")
    setting = UpdateRequest(set={"v": "'c'"}, where="id = 2", dialect="duckdb")
    replaced = OverwriteRequest(rows=source, overwrite_filter="id >= 4")
    return {
        "append": (append, AppendRequest(rows=source), [*old, (4, "b"), (5, "b")]),
        "overwrite": (overwrite, replaced, [*old[:3], (4, "b"), (5, "b")]),
        "delete": (delete, DeleteRequest(predicate="id = 2"), [old[0], *old[2:]]),
        "merge": (merge, upsert, [*old[:3], (4, "b"), (5, "b")]),
        "update": (update, setting, [old[0], (2, "c"), *old[2:]]),
        "compact": (compact, CompactRequest(options={"rewrite-all": True}), old),
    }


OPERATIONS = ("append", "overwrite", "delete", "merge", "update", "compact")


@pytest.mark.parametrize("catalog", ["sql", "hadoop"], indirect=True)
@pytest.mark.parametrize("name", OPERATIONS)
class TestEveryOperation:
    """Rows and snapshots are those of a process that waits for its jobs."""

    @pytest.mark.costly
    def test_is_committed_once_by_a_later_process(self, name, works, run, table):
        operation, request, expected = works[name]
        before = len(table.refresh().snapshots())
        result = run(operation, request)
        assert sorted(content(table)) == sorted(expected)
        assert (result.outcome, len(table.snapshots()) - before) == ("committed", 1)
        assert len(run.started) == (2 if name == "overwrite" else 1)
        assert not run.waited
        assert staged(table) == []
        again = operation(job_work(Table.load(table.catalog, "db.t"), operation_key=KEY, try_number=2), request)
        assert (again.outcome, again.snapshot_id) == ("found", result.snapshot_id)
        assert data_locations(table) <= reachable(table)

    @pytest.mark.costly
    def test_goes_on_beside_a_writer_of_other_rows(self, name, works, run, table):
        operation, request, expected = works[name]
        run(operation, request, lambda: table.refresh().append(rows((0, "new"))))
        assert sorted(content(table)) == sorted([(0, "new"), *expected])
        assert len(run.started) == (2 if name == "overwrite" else 1)

    @pytest.mark.costly
    def test_goes_on_when_the_table_was_altered(self, name, works, run, table):
        operation, request, expected = works[name]
        run(operation, request, lambda: table.refresh().alter([{"add_column": {"name": "w", "type": "int"}}]))
        assert sorted(content(table)) == sorted(expected)

    @pytest.mark.costly
    def test_meets_an_upgrade_as_ever(self, name, works, run, table):
        """An overwrite, whose new rows may come from the table, has to run again; others are planned again."""
        operation, request, expected = works[name]
        upgrade = {"upgrade_format_version": 3}
        if name == "overwrite":
            with pytest.raises(StalePlanError, match="was upgraded from format version 2 to 3"):
                run(operation, request, lambda: table.refresh().alter([upgrade]))
            return
        run(operation, request, lambda: table.refresh().alter([upgrade]))
        assert sorted(content(table)) == sorted(expected)

    @pytest.mark.costly
    def test_keeps_its_documents_from_a_cleaning_of_the_table(self, name, works, run, table):
        """Files of a job that may run are no orphans, also when they are older than those that are removed."""
        operation, request, expected = works[name]
        run.begin(operation, request)
        data = data_locations(table)
        run.finish()
        age(*(folder_of(table).glob("data/*")), days=10)
        remove_orphan_files(Work(Table.load(table.catalog, "db.t")), RemoveOrphanFilesRequest())
        assert data_locations(table) > data
        while run.resume(operation, request) is None:
            run.finish()
        assert sorted(content(table)) == sorted(expected)


class TestTheStateThatWasPlannedOn:
    """It lies beside the plan: what happens to the table's own metadata files does not matter."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_is_kept_when_its_metadata_file_is_deleted_and_forgotten(self, name, works, catalog, run, table):
        operation, request, expected = works[name]
        properties = {
            "write.metadata.previous-versions-max": "1",
            "write.metadata.delete-after-commit.enabled": "true",
        }
        table.refresh().alter([{"set_properties": properties}])
        before = table.metadata_location

        def forget() -> None:
            for number in range(3):
                table.alter([{"set_properties": {"n": str(number)}}])
            (folder_of(table) / "metadata" / before.rpartition("/")[2]).unlink(missing_ok=True)

        result = run.begin(operation, request)
        while result is None:
            run.finish()
            forget()
            result = run.resume(operation, request)
        assert sorted(content(table)) == sorted(expected)
        assert len(run.started) == (2 if name == "overwrite" else 1)

    @pytest.mark.costly
    def test_an_append_goes_on_when_its_snapshot_has_expired(self, works, run, table):
        operation, request, expected = works["append"]

        run(operation, request, lambda: expire_all_but_a_new_one(table))
        assert sorted(content(table)) == sorted([(0, "new"), *expected])
        assert len(run.started) == 1

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["delete", "merge", "update", "compact"])
    def test_others_are_planned_again_when_their_snapshot_has_expired(self, name, works, run, table):
        operation, request, expected = works[name]

        result = run(operation, request, lambda: expire_all_but_a_new_one(table))
        assert result.outcome == "committed"
        assert sorted(content(table)) == sorted([(0, "new"), *expected])
        assert staged(table) == []

    @pytest.mark.costly
    @pytest.mark.parametrize("name", OPERATIONS)
    @pytest.mark.parametrize("document", ["table.json", "plan.json"])
    def test_without_a_document_the_work_is_planned_again(self, name, document, works, run, table):
        operation, request, expected = works[name]
        assert run.begin(operation, request) is None
        run.finish()
        (path,) = [path for path in folder_of(table).rglob(document) if ".staging" in path.parts]
        path.unlink()
        result = run.resume(operation, request)
        while result is None:
            run.finish()
            result = run.resume(operation, request)
        assert sorted(content(table)) == sorted(expected)
        assert staged(table) == []


class TestOtherWriters:
    """They are met by the checks of the commit, as by a process that has waited."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", ["delete", "merge", "update", "compact"])
    def test_a_change_of_the_same_rows_is_planned_for_again(self, name, works, run, table):
        operation, request, _ = works[name]
        run(operation, request, lambda: table.refresh().overwrite(rows((2, "x"), (4, "x")), overwrite_filter="id > 1"))
        expected = {
            "delete": [(1, "a"), (4, "x")],
            "merge": [(1, "a"), (2, "x"), (4, "b"), (5, "b")],
            "update": [(1, "a"), (2, "c"), (4, "x")],
            "compact": [(1, "a"), (2, "x"), (4, "x")],
        }
        assert content(table) == expected[name]
        assert staged(table) == []

    @pytest.mark.costly
    def test_an_overwrite_of_the_same_rows_fails_as_ever(self, works, run, table):
        operation, request, _ = works["overwrite"]
        with pytest.raises(StalePlanError):
            run(operation, request, lambda: table.refresh().append(rows((9, "x"))))
        assert content(table)[-1] == (9, "x")

    @pytest.mark.costly
    def test_it_is_not_planned_again_for_ever(self, works, run, table):
        operation, request, _ = works["update"]
        assert run.begin(operation, request) is None
        for number in range(MOST_ROUNDS):
            table.refresh().overwrite(rows((2, str(number))), overwrite_filter="id = 2")
            run.finish()
            if number < MOST_ROUNDS - 1:
                assert run.resume(operation, request) is None
        with pytest.raises(StalePlanError, match=f"in each of {MOST_ROUNDS} rounds; nothing was committed"):
            run.resume(operation, request)
        assert len(run.started) == MOST_ROUNDS

    @pytest.mark.costly
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_the_same_work_of_another_process_is_found(self, name, works, run, table):
        operation, request, expected = works[name]

        def other() -> None:
            operation(job_work(Table.load(table.catalog, "db.t"), operation_key=KEY, try_number=1), request)

        result = run(operation, request, other)
        assert result.outcome == "found"
        assert name == "compact" or staged(table) == []
        assert sorted(content(table)) == sorted(expected)

    def test_a_later_run_of_a_cleared_task_is_not_overtaken(self, works, run, table):
        operation, request, expected = works["append"]
        later = replace(KEY, epoch=1)

        def clear() -> None:
            operation(job_work(Table.load(table.catalog, "db.t"), operation_key=later, try_number=2), request)

        with pytest.raises(IncompatibleChangeError, match="was superseded"):
            run(operation, request, clear)
        assert sorted(content(table)) == sorted(expected)

    def test_another_table_of_the_same_name_is_not_written(self, works, catalog, run, table):
        operation, request, _ = works["append"]
        run.begin(operation, request)
        run.finish()
        kept = json.loads(run.text)["metadata"]["location"]
        state = table.io.read(kept)
        catalog.drop_table("db.t")
        Table.create(catalog, "db.t", schema={"id": "long", "v": "string"})
        plan = run.started[-1]
        if not table.io.exists(kept):
            table.io.create(kept, state)
            table.io.create(plan.location, plan.to_json())
        with pytest.raises(InvalidInputError, match="was replaced by another one while the job ran"):
            run.resume(operation, request)


class TestInputs:
    """They are read at the snapshot that was chosen first."""

    @pytest.mark.costly
    def test_a_later_snapshot_of_an_input_does_not_count(self, catalog, run, table):
        other = Table.create(catalog, "db.o", schema={"id": "long", "v": "string"})
        first = other.append(rows((7, "o")))
        rows_of_input = Source.from_sql("select id, v from o where id > 0", dialect="duckdb")
        request = AppendRequest(rows=rows_of_input, inputs={"o": Input(open=lambda: Table.load(catalog, "db.o"))})

        def write() -> None:
            other.append(rows((8, "o")))

        result = run(append, request, write)
        assert content(table)[-1] == (7, "o")
        assert len(run.started) == 1
        assert str(first.snapshot_id) in json.dumps(result.to_xcom())

    @pytest.mark.costly
    def test_a_query_that_reads_more_of_them_gets_no_rows_that_were_cut_for_another(self, catalog, run, table):
        Table.create(catalog, "db.raw", schema={"id": "long", "v": "string"}).append(
            rows((11, "r"), (12, "r"), (13, "r"))
        )

        def asked(condition: str) -> AppendRequest:
            source = Source.from_sql(f"select id, v from raw where {condition}", {}, dialect="duckdb")
            return AppendRequest(rows=source, inputs={"raw": Input(open=lambda: Table.load(catalog, "db.raw"))})

        before = content(table)
        assert run.begin(append, asked("id <= 12")) is None
        run.finish()
        with pytest.raises(StalePlanError, match="is planned in another way than when the task was deferred"):
            run.resume(append, asked("id >= 12"))
        assert content(table) == before
        assert staged(table) == []


class TestAnotherPlan:
    """Of the same request: the package was upgraded meanwhile."""

    @pytest.mark.costly
    def test_the_files_of_the_job_are_not_used(self, works, run, table):
        operation, _, _ = works["delete"]
        assert run.begin(operation, DeleteRequest(predicate="id = 2")) is None
        run.finish()
        before = content(table)
        with pytest.raises(StalePlanError, match="is planned in another way than when the task was deferred"):
            run.resume(operation, DeleteRequest(predicate="id = 3"))
        assert content(table) == before
        assert staged(table) == []


class TestATaskThatGoesOnLate:
    """Somebody may have listed the files of its job as orphans already."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_it_is_planned_again(self, name, works, run, table):
        operation, request, expected = works[name]
        assert run.begin(operation, request) is None
        run.finish()
        long_ago = time.time() - LATEST_S - 60
        for path in staged(table):
            os.utime(path.removeprefix("file://"), (long_ago, long_ago))
        result = run.resume(operation, request)
        assert result is None
        while result is None:
            run.finish()
            result = run.resume(operation, request)
        assert result.outcome == "committed"
        assert len(run.started) >= 2
        assert sorted(content(table)) == sorted(expected)


class TestTwoProcessesWithOneHandle:
    """As after a failover of Airflow's database: the second one deletes no file that the first one has committed."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "overwrite"])
    def test_one_commits_and_the_rows_stay(self, name, works, run, table, monkeypatch):
        operation, request, expected = works[name]
        assert run.begin(operation, request) is None
        run.finish()
        other = DeferredRun(lambda: Table.load(table.catalog, "db.t"), key=KEY)
        other.text = run.text
        inner, outcomes = Work.check_files, []

        def between(work: Work, paths: Any) -> None:
            if not outcomes:
                outcomes.append(None)
                outcomes[0] = other.resume(operation, request)
            inner(work, paths)

        monkeypatch.setattr(Work, "check_files", between)
        with contextlib.suppress(IcebergError):
            run.resume(operation, request)
        assert outcomes[0].outcome == "committed"
        assert sorted(content(table)) == sorted(expected)


class TestTheEndOfTheJob:
    """Only the result that the job has signed counts."""

    @pytest.mark.costly
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_its_own_error_is_raised(self, name, works, run, table):
        operation, request, _ = works[name]
        run.begin(operation, request)
        before = content(table)
        run.finish(lambda result: type(result).failed(InvalidInputError("the job says so")))
        with pytest.raises(InvalidInputError, match="the job says so"):
            run.resume(operation, request)
        assert content(table) == before
        assert staged(table) == []

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_without_a_result_it_died(self, name, works, run, table):
        operation, request, _ = works[name]
        run.begin(operation, request)
        with pytest.raises(StalePlanError, match=r"ended without a result at .*; the cluster says: KILLED"):
            run.resume(operation, request, ended="the cluster says: KILLED")
        assert staged(table) == []


class TestWhoCanWriteToTheFolder:
    """Nothing of what lies there is believed: all of it is sealed or signed, by what the handle holds."""

    @pytest.mark.costly
    @pytest.mark.parametrize("document", ["table.json", "plan.json", "result.json"])
    @pytest.mark.parametrize("name", ["append", "merge", "compact"])
    def test_a_changed_document_is_refused(self, name, document, works, run, table):
        operation, request, _ = works[name]
        run.begin(operation, request)
        run.finish()
        before = content(table)
        (path,) = [path for path in folder_of(table).rglob(document) if ".staging" in path.parts]
        data = path.read_bytes()
        assert b"long" in data or b"succeeded" in data
        path.write_bytes(data.replace(b"long", b"intt").replace(b"succeeded", b"succeedee"))
        with pytest.raises(FormatError, match="is not the one that was written"):
            run.resume(operation, request)
        assert content(table) == before

    def test_the_handle_holds_no_secret(self, run, table, tmp_path):
        pq.write_table(rows((5, "b")), tmp_path / "source.parquet")
        # A signed address: its signature is a secret.
        signed = Source.from_files(
            f"file://{tmp_path}/source.parquet?X-Amz-Signature=abcdef0123456789", file_format="parquet"
        )
        assert run.begin(append, AppendRequest(rows=signed)) is None
        assert "abcdef0123456789" not in run.text
        assert run._seed not in run.text

    def test_a_broken_handle_is_an_error(self, run, works):
        operation, request, _ = works["append"]
        run.begin(operation, request)
        for broken in ("{}", '{"jobs": 3}', run.text.replace("rounds", "rings")):
            run.text, kept = broken, run.text
            with pytest.raises(FormatError, match="the handle of a deferred task"):
                run.resume(operation, request)
            run.text = kept


class TestAPlan:
    """Two processes plan the same job."""

    @pytest.mark.costly
    def test_it_is_the_same_text_but_for_the_names_of_the_try(self, works, run, table):
        for operation, request, _ in works.values():
            run.begin(operation, request)
            run.begin(operation, request)
            first, second = (one.to_json().decode().replace(one.file_prefix, "*") for one in run.started[-2:])
            assert first == second
            assert isinstance(run.started[-1], JobPlan)
