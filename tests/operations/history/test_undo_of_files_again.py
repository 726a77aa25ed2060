"""Undo of a run whose files others have added once more: a path does not tell whose rows are removed or restored."""

from dataclasses import replace

import pytest

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.operation_key import UNDONE_SNAPSHOTS, OperationKey
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.operations.append import AppendRequest
from airflow_iceberg.operations.history import undo as module
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids, lineage, new_table


def key(run):
    return OperationKey(dag_id="d", run_id=run, task_id="load")


def files_of(table):
    return [replace(task.file, first_row_id=None) for task in table.scan().plan_files()]


def add(table, run, files):
    settings = Work(table, operation_key=key(run)).settings(AppendRequest(rows=id_rows([1])))
    table.commit(AppendFiles(table.io, files, settings, written_schema=table.schema()))


@pytest.fixture(params=[1, 2, 3], ids=["v1", "v2", "v3"])
def table(request, tmp_path):
    table = new_table(tmp_path, properties={"format-version": str(request.param)})
    table.append(id_rows(range(5)), operation_key=key("r1"))
    return table


class TestAFileThatIsAddedAgain:
    """Its rows are those of the work that has added it last."""

    def test_after_others_have_removed_it_is_theirs(self, table):
        files = files_of(table)
        table.append(id_rows(range(5, 10)))
        table.delete("id < 5")
        add(table, "r2", files)
        table.undo(key("r1"))
        assert ids(table) == list(range(10))
        table.undo(key("r2"))
        assert ids(table) == list(range(5, 10))

    def test_by_an_undo_is_still_the_first_run_s(self, table):
        table.delete("id < 5", operation_key=key("deletes"))
        table.append(id_rows(range(5, 8)))
        table.undo(key("deletes"))
        assert ids(table) == list(range(8))
        table.undo(key("r1"))
        assert ids(table) == [5, 6, 7]

    def test_while_it_is_there_is_refused(self, table):
        add(table, "r2", files_of(table))
        with pytest.raises(IncompatibleChangeError, match="was added to the table once more"):
            table.undo(key("r1"))
        assert sorted(ids(table)) == sorted([*range(5), *range(5)])

    def test_files_that_were_there_twice_are_not_restored_once(self, table):
        add(table, "r2", files_of(table))
        table.append(id_rows([9]))
        table.delete("id < 5", operation_key=key("deletes"))
        with pytest.raises(IncompatibleChangeError, match="had twice"):
            table.undo(key("deletes"))
        assert ids(table) == [9]

    @pytest.mark.parametrize("undone", ["r1", "deletes"])
    def test_while_the_undo_is_planned(self, table, undone, monkeypatch):
        files, plan, done = files_of(table), module.plan_undo, []
        table.append(id_rows(range(5, 10)))
        if undone == "deletes":
            table.delete("id < 5", operation_key=key("deletes"))

        def others_add(*arguments):
            found = plan(*arguments)
            if not done:
                done.append(True)
                add(Table.load(table.catalog, "db.t"), "r2", files)
            return found

        monkeypatch.setattr(module, "plan_undo", others_add)
        with pytest.raises(IncompatibleChangeError, match=r"once more|in the table again"):
            table.undo(key(undone))
        assert sorted(ids(table.refresh())) == sorted([*range(5), *range(10)][-10 if undone == "deletes" else 0 :])


class TestASummaryThatLies:
    """Another program's snapshot says that it has undone the run, whose rows are there."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda table: table.undo(key("r1")),
            lambda table: table.append(id_rows([1]), operation_key=replace(key("r1"), epoch=1), on_rerun="replace"),
        ],
        ids=["undo", "clear"],
    )
    def test_is_not_believed(self, table, monkeypatch, ask):
        settings, target = table.commit_settings(), table.current_snapshot()
        lies = replace(settings, properties={**settings.properties, UNDONE_SNAPSHOTS: str(target.snapshot_id)})
        monkeypatch.setattr(table, "commit_settings", lambda **_: lies)
        table.append(id_rows([7]))
        monkeypatch.undo()
        with pytest.raises(IncompatibleChangeError, match="its summary is forged"):
            ask(table)
        assert ids(table) == [0, 1, 2, 3, 4, 7]


class TestAnUpgradeMeanwhile:
    """Rows of before version 3 get row ids after the upgrade, and keep them."""

    @pytest.mark.parametrize("predicate", ["id < 2", "id < 5"])
    def test_kept_rows_do_not_get_other_row_ids(self, tmp_path, predicate):
        table = new_table(tmp_path, properties={"format-version": "2"})
        table.append(id_rows(range(5)))
        table.delete(predicate, operation_key=key("deletes"), mode="copy-on-write")
        table.alter([{"upgrade_format_version": 3}])
        table.append(id_rows([9]))
        before = lineage(table)
        if predicate == "id < 2":
            with pytest.raises(IncompatibleChangeError, match="would get other ones"):
                table.undo(key("deletes"))
            assert lineage(table) == before
        else:
            table.undo(key("deletes"))
            assert ids(table) == [*range(5), 9]
