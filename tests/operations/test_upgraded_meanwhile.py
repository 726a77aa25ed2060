"""Files are rewritten while another writer upgrades the table to version 3: rows that stay keep their row ids."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, id_rows, ids, lineage, new_table, reachable

COMPACT = CompactRequest(options={"rewrite-all": True})
DELETE = DeleteRequest(predicate="id = 3", mode="copy-on-write")
SOME, ALL = (UpdateRequest(set={"id": "id + 20"}, where=where, dialect="duckdb") for where in ("id in (3, 7)", None))
UPDATES = [
    pytest.param(update, replace(request, mode=mode), id=f"update-{mode}-{name}")
    for mode in ("copy-on-write", "merge-on-read")
    for name, request in (("some", SOME), ("all", ALL))
]
UPGRADE = {"upgrade_format_version": 3}


def another(table: Table) -> Table:
    return Table.load(table.catalog, table.identifier)


def upgrade(table: Table) -> None:
    another(table).alter([UPGRADE])


def upgrade_and_append(table: Table) -> None:
    upgrade(table)
    append(table)


def append(table: Table) -> None:
    another(table).append(id_rows([100]))


def begun(folder: Path, version: int) -> Table:
    table = new_table(folder, properties={"format-version": str(version)})
    table.append(id_rows(range(5)))
    table.append(id_rows(range(5, 10)))
    return table


def work(table: Table, meanwhile: Callable[[Table], None]) -> tuple[Work, list[JobPlan]]:
    """Return work during whose first job something happens, and the jobs that it ran."""
    jobs: list[JobPlan] = []

    def run(plan: JobPlan) -> JobResult:
        jobs.append(plan)
        done = run_local(plan, table.io, threads=2)
        if len(jobs) == 1:
            meanwhile(table)
        return done

    return Work(table, run=run), jobs


def row_ids(table: Table) -> dict[int, int]:
    return {row["id"]: row["_row_id"] for row in lineage(table).to_pylist()}


def planned_again(
    table: Table, version: int, meanwhile: Callable[[Table], None], verb: Callable[..., Any], request: Any
) -> dict[int, int]:
    """Do work whose table is upgraded meanwhile; return the row ids right after that."""
    seen: dict[int, int] = {}

    def others(table: Table) -> None:
        meanwhile(table)
        seen.update(row_ids(another(table)))

    job, plans = work(table, others)
    assert verb(job, request).outcome == "committed"
    assert [plan.task.write.format_version for plan in plans] == [version, 3]
    assert data_locations(table.refresh()) <= reachable(table), "files of the first plan are left"
    return seen


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("meanwhile", [upgrade, upgrade_and_append])
class TestUpgradedMeanwhile:
    """The work is planned again, for files with the lineage of their rows."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("verb", "request_"), [(compact, COMPACT), (delete, DELETE)])
    def test_a_rewrite_is_replanned(self, tmp_path, version, meanwhile, verb, request_):
        table = begun(tmp_path, version)
        seen = planned_again(table, version, meanwhile, verb, request_)
        found = row_ids(table)
        assert None not in found.values()
        assert all(found[number] == seen[number] for number in found if seen[number] is not None)
        assert set(found) == set(seen) - ({3} if verb is delete else set())

    @pytest.mark.costly
    @pytest.mark.parametrize(("verb", "request_"), UPDATES)
    def test_an_update_is_replanned(self, tmp_path, version, meanwhile, verb, request_):
        if version == 1 and request_.mode == "merge-on-read":
            pytest.skip("version 1 has no delete files")
        table = begun(tmp_path, version)
        seen = planned_again(table, version, meanwhile, verb, request_)
        check_updated(seen, row_ids(table))

    @pytest.mark.costly
    def test_an_overwrite_runs_again(self, tmp_path, version, meanwhile):
        """Its new rows may have been computed from the old ones."""
        table = begun(tmp_path, version)
        job, _ = work(table, meanwhile)
        request = OverwriteRequest(rows=pa.table({"id": [3]}), overwrite_filter="id = 3")
        with pytest.raises(StalePlanError, match=r"upgraded from format version \d to 3 while its rows were rewritten"):
            overwrite(job, request)
        assert ids(table.refresh())[:10] == list(range(10))
        assert overwrite(job, request).outcome == "committed"


def check_updated(seen: dict[int, int], found: dict[int, int]) -> None:
    """Every row has the id that it had; a row that was updated has another number."""
    assert None not in found.values()
    ids_of_rows = {number: row_id for number, row_id in seen.items() if row_id is not None}
    kept = {number: found.get(number, found.get(number + 20)) for number in ids_of_rows}
    assert kept == ids_of_rows
    assert len(found) == len(seen)


class TestRowsThatGetTheirIdsMeanwhile:
    """After an upgrade the next commit, whatever it is, gives ids to the rows of older files."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("verb", "request_"), UPDATES)
    def test_an_update_is_replanned(self, tmp_path, verb, request_):
        table = begun(tmp_path, 2)
        upgrade(table)
        table.refresh()
        seen: dict[int, int] = {}

        def others(table: Table) -> None:
            append(table)
            seen.update(row_ids(another(table)))

        job, plans = work(table, others)
        assert verb(job, request_).outcome == "committed"
        assert len(plans) == 2
        check_updated(seen, row_ids(table.refresh()))

    @pytest.mark.costly
    @pytest.mark.parametrize(("verb", "request_"), [(compact, COMPACT), (delete, DELETE)])
    def test_a_rewrite_is_replanned(self, tmp_path, verb, request_):
        table = begun(tmp_path, 2)
        upgrade(table)
        table.refresh()
        job, plans = work(table, append)
        assert verb(job, request_).outcome == "committed"
        assert len(plans) == 2
        seen = row_ids(Table.from_metadata(one_before(table.refresh()), io=table.io))
        found = row_ids(table)
        assert found == {number: seen[number] for number in found}

    @pytest.mark.parametrize(("verb", "request_"), [(compact, COMPACT), (delete, DELETE)])
    def test_without_another_commit_nothing_is_planned_twice(self, tmp_path, verb, request_):
        table = begun(tmp_path, 2)
        upgrade(table)
        job, plans = work(table.refresh(), lambda _: None)
        assert verb(job, request_).outcome == "committed"
        assert len(plans) == 1
        assert None not in row_ids(table.refresh()).values()

    def test_a_metadata_delete_needs_no_plan(self, tmp_path):
        table = begun(tmp_path, 2)
        stale = another(table)
        upgrade_and_append(table)
        assert delete(Work(stale), DeleteRequest(predicate="id < 5")).deleted_records == 5
        assert ids(table.refresh()) == [5, 6, 7, 8, 9, 100]


def one_before(table: Table) -> str:
    return table.metadata.metadata_log[-1][1]
