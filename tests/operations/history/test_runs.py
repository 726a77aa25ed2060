"""`table.runs()`: which DAG run, task and try made which snapshot, what it added and removed, and what it read."""

import json

import pytest

from airflow_iceberg.commit.operation_key import UNDONE_SNAPSHOTS, OperationKey
from airflow_iceberg.errors import NotFoundError
from tests.support.builders import id_rows, new_table

KEY = OperationKey(dag_id="load", run_id="r1", task_id="t", map_index=3)


def forged(table, **summary):
    """Return the table with these entries in the summary of its newest snapshot."""
    head = table.metadata.current_snapshot()
    object.__setattr__(head, "summary", {**head.summary, **summary})
    return table


@pytest.fixture
def table(tmp_path):
    table = new_table(tmp_path)
    table.append(id_rows(range(5)), operation_key=KEY)
    table.append(id_rows(range(5, 7)))
    table.delete("id < 2", operation_key=OperationKey(dag_id="clean", run_id="r2", task_id="d"))
    return table


class TestARun:
    """One for each snapshot, newest first."""

    def test_names_the_task_of_each_snapshot(self, table):
        found = [(one.dag_id, one.run_id, one.task_id, one.map_index, one.try_number) for one in table.runs()]
        assert found == [("clean", "r2", "d", -1, 1), (None,) * 5, ("load", "r1", "t", 3, 1)]
        assert table.runs()[-1].operation_key == str(KEY)

    def test_counts_what_it_added_and_removed(self, table):
        deleted, second, first = table.runs()
        assert (first.added_records, first.added_data_files) == (5, 1)
        assert (second.added_records, second.writer) == (2, "airflow-iceberg")
        # Copy-on-write: three rows were only written again.
        assert (deleted.added_records, deleted.deleted_records) == (0, 2)

    def test_a_choice(self, table):
        assert [one.task_id for one in table.runs(dag_id="load")] == ["t"]
        assert table.runs(dag_id="load", run_id="r2") == ()
        assert [one.run_id for one in table.runs(task_id="d")] == ["r2"]

    def test_of_a_branch(self, table):
        table.create_branch("audit", table.runs()[-1].snapshot_id)
        table.append(id_rows([9]), branch="audit")
        assert len(table.runs(branch="audit")) == 2
        assert len(table.runs()) == 4
        newest = table.runs(branch="audit")[0]
        assert (newest.refs, newest.is_in_main) == (("audit",), False)
        with pytest.raises(NotFoundError, match="nowhere"):
            table.runs(branch="nowhere")

    def test_what_was_read(self, table):
        read = {"orders": {"catalog": "c", "table": "db.o", "table-uuid": "u", "snapshot-id": "17"}}
        assert forged(table, **{"airflow.inputs": json.dumps(read)}).runs()[0].inputs == read


class TestForgedSummaries:
    """Anybody who can write to the table writes its summaries."""

    @pytest.mark.parametrize("inputs", ["[]", "{", '{"a": 1}', "[" * 100_000, "null"])
    def test_are_shown_as_far_as_they_make_sense(self, table, inputs):
        rewritten = forged(
            table,
            **{
                "airflow.inputs": inputs,
                "airflow.map-index": "x",
                "airflow.try-number": "9" * 5000,
                "added-records": "-1",
                UNDONE_SNAPSHOTS: "1,,x,99999999999999999999",
            },
        )
        run = rewritten.runs()[0]
        assert (run.map_index, run.try_number, run.undoes) == (None, None, (1,))
        json.dumps(run.to_dict())


class TestPlainValues:
    """For JSON, whose readers round large integers."""

    def test_ids_are_texts(self, table):
        plain = table.runs()[0].to_dict()
        assert plain["snapshot_id"] == str(table.metadata.current_snapshot().snapshot_id)
        assert plain["undone_by"] is None
        assert json.loads(json.dumps(plain)) == plain


def test_a_table_without_snapshots_has_none(tmp_path):
    assert new_table(tmp_path).runs() == ()
