"""Jobs that run for days: their files look like orphans, and a commit must not refer to files that are gone."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.jobs.protocol import heartbeat
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import age, data_locations, folder_of, id_rows, ids, litter, new_table, reachable, staged

DAYS_S = 4 * 24 * 60 * 60
JSON_ROWS = '{"id": 100}\n'


@pytest.fixture(params=["plain", "object storage", "partitioned"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    spread = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": "false",
    }
    table = new_table(
        tmp_path,
        partition_by=["bucket(2, id)"] if request.param == "partitioned" else [],
        properties={"format-version": "3", **(spread if request.param == "object storage" else {})},
    )
    table.append(id_rows(range(10)))
    (tmp_path / "rows.jsonl").write_text(JSON_ROWS)
    return table


def verbs(folder: Path) -> dict[str, Callable[[Work], Any]]:
    rows = Source.from_files([f"{folder}/rows.jsonl"])
    return {
        "append": lambda work: append(work, AppendRequest(rows=rows)),
        "overwrite": lambda work: overwrite(work, OverwriteRequest(rows=rows, replace="table")),
        "overwrite rows": lambda work: overwrite(work, OverwriteRequest(rows=rows, overwrite_filter="id in (3, 100)")),
        "copy-on-write": lambda work: delete(work, DeleteRequest(predicate="id = 3", mode="copy-on-write")),
        "merge-on-read": lambda work: delete(work, DeleteRequest(predicate="id = 3", mode="merge-on-read")),
        "compact": lambda work: compact(work, CompactRequest(options={"rewrite-all": True})),
    }


VERBS = list(verbs(Path()))


def working(table: Table, at_the_end: Callable[[set[str]], object]) -> Work:
    """Return work of four days; at the end of each of its jobs something happens to the job's new files."""

    def run(plan: JobPlan) -> JobResult:
        before = data_locations(table)
        done = run_local(plan, table.io, threads=2)
        age(folder_of(table), days=4)
        at_the_end(data_locations(table) - before)
        return done

    return Work(table, run=run, started_s=time.monotonic() - DAYS_S)


def clean(table: Table, **request: Any) -> Any:
    other = Table.load(table.catalog, table.identifier)
    return remove_orphan_files(Work(other), RemoveOrphanFilesRequest(**request))


@pytest.mark.sample(3)
@pytest.mark.parametrize("verb", VERBS)
class TestFilesThatAreGone:
    """The commit finds that they are gone: nothing is committed, and nothing is left."""

    @pytest.mark.parametrize("action", ["quarantine", "delete"])
    def test_after_a_removal_of_orphans(self, table, tmp_path, verb, action):
        head, rows = table.current_snapshot(), ids(table)
        work = working(table, lambda new: clean(table, action=action))
        with pytest.raises(StalePlanError):
            verbs(tmp_path)[verb](work)
        assert (table.refresh().current_snapshot(), ids(table)) == (head, rows)
        assert data_locations(table) <= reachable(table) | quarantined(table)
        assert not staged(table)

    def test_after_one_file_was_deleted_by_a_person(self, table, tmp_path, verb):
        head = table.current_snapshot()
        work = working(table, lambda new: table.io.delete(sorted(new)[:1]))
        with pytest.raises(StalePlanError):
            verbs(tmp_path)[verb](work)
        assert table.refresh().current_snapshot() == head
        assert data_locations(table) <= reachable(table)

    def test_with_all_files_it_commits(self, table, tmp_path, verb):
        assert verbs(tmp_path)[verb](working(table, lambda new: None)).outcome == "committed"
        assert len(ids(table.refresh())) == {"append": 11, "compact": 10, "overwrite": 1, "overwrite rows": 10}.get(
            verb, 9
        )


def quarantined(table: Table) -> set[str]:
    return {place for place in data_locations(table) if "/.quarantine/" in place}


class TestTheMessage:
    def test_it_says_what_is_gone_and_what_to_do(self, table, tmp_path):
        work = working(table, lambda new: table.io.delete(new))
        with pytest.raises(StalePlanError, match=r"1 of 1 new files for table db\.t are gone .* run it again, and let"):
            verbs(tmp_path)["append"](work)


@pytest.mark.sample(3)
@pytest.mark.parametrize("verb", VERBS)
class TestSignsOfLife:
    """A job writes one from time to time, so that its files are no orphans, however old they are."""

    @pytest.mark.parametrize("request_", [{}, {"action": "delete"}, {"location": "data"}], ids=str)
    def test_the_files_of_a_running_job_are_kept(self, table, tmp_path, verb, request_, monkeypatch):
        monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.2)
        (other,) = litter(table, "data/litter.parquet")
        given = {**request_, **({"location": f"{table.location}/data"} if "location" in request_ else {})}
        seen: list[Any] = []

        def at_the_end(new: set[str]) -> None:
            wait_for(lambda: all_live(table))
            seen.append(clean(table, **given))

        assert verbs(tmp_path)[verb](working(table, at_the_end)).outcome == "committed"
        assert [result.orphan_files for result in seen] == [1, 0][: len(seen)]
        assert not other.exists()
        assert len(ids(table.refresh())) > 0
        assert not staged(table)


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def all_live(table: Table) -> bool:
    """Whether each job has a young sign of life."""
    jobs = {place.rpartition("/")[0] for place in staged(table) if place.endswith("/plan.json")}
    return jobs == {place.rpartition("/")[0] for place in staged(table) if "/alive-" in place and is_young(place)}


def is_young(place: str) -> bool:
    try:
        return Path(place.removeprefix("file://")).stat().st_mtime > time.time() - 60
    except FileNotFoundError:
        return False


class TestDeadJobs:
    def test_their_files_are_orphans(self, table, tmp_path):
        prefix = "manual-0123456789ab"
        litter(
            table,
            f".staging/{prefix}/plan.json",
            f"data/{prefix}-00000-x-00001.parquet",
            f"data/01011010-{prefix}-1.parquet",
        )
        found = clean(table)
        assert (found.orphan_files, found.staging_files) == (2, 1)

    def test_those_of_a_job_that_wrote_a_document_yesterday_are_not(self, table, tmp_path):
        prefix = "manual-0123456789ab"
        litter(table, f"data/{prefix}-00000-x-00001.parquet", f"data/01011010-{prefix}-1.parquet", "data/other.parquet")
        litter(table, f".staging/{prefix}/plan.json")
        litter(table, f".staging/{prefix}/alive-000003", days=1)
        found = clean(table)
        assert (found.orphan_files, found.staging_files) == (1, 0)
        assert found.orphans[0].endswith("data/other.parquet")

    def test_only_the_beginning_of_a_name_counts(self, table):
        litter(table, "data/x-a-1.parquet", "data/ab.parquet")
        litter(table, ".staging/a/plan.json", days=0)
        assert clean(table).orphan_files == 2


class TestCost:
    @pytest.mark.costly
    def test_a_short_job_asks_for_no_file(self, table, tmp_path, monkeypatch):
        asked: list[str] = []
        monkeypatch.setattr(staging, "check_still_there", lambda *given, **more: asked.append("asked"))
        for verb in verbs(tmp_path).values():
            verb(Work(table.refresh(), run=lambda plan: run_local(plan, table.io)))
        assert not asked
