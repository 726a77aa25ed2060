"""The operation key: who made a commit, and how a table is asked about it."""

import pytest

from airflow_iceberg.commit.operation_key import OperationKey, check_properties
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError

KEY = OperationKey(dag_id="load", run_id="scheduled__2026-01-01T00:00:00+00:00", task_id="group.append")


class TestTheTextOfAKey:
    """A key is dag id, run id, task id, map index and clear epoch, joined by slashes."""

    def test_the_text_is_readable(self):
        assert str(KEY) == "load/scheduled__2026-01-01T00:00:00+00:00/group.append/-1/0"

    def test_a_slash_in_a_run_id_cannot_make_two_keys_look_alike(self):
        one = OperationKey(dag_id="a", run_id="b/c", task_id="d")
        two = OperationKey(dag_id="a", run_id="b", task_id="c/d")
        assert str(one) != str(two)
        assert str(one) == "a/b%2Fc/d/-1/0"

    @pytest.mark.parametrize("run_id", ["manual__x", "a/b%2Fc", "ünïcode ✓", "%", "", "a b+c@d"])
    def test_parsing_gives_the_key_back(self, run_id):
        key = OperationKey(dag_id="d.e-f", run_id=run_id, task_id="t", map_index=7, epoch=3)
        assert OperationKey.parse(str(key)) == key

    @pytest.mark.parametrize("text", ["", "a/b/c", "a/b/c/x/0", "a/b/c/0/-1", "a/b/c/0/1/2"])
    def test_anything_else_is_refused(self, text):
        with pytest.raises(InvalidInputError):
            OperationKey.parse(text)

    def test_the_earliest_start_is_not_part_of_the_key(self):
        later = OperationKey(dag_id="load", run_id=KEY.run_id, task_id=KEY.task_id, run_after_ms=5)
        assert str(later) == str(KEY)


class TestTheTokenInFileNames:
    """Files of one piece of work carry the same token before and after a clear, and no other work does."""

    def test_a_clear_keeps_the_token(self):
        cleared = OperationKey(dag_id=KEY.dag_id, run_id=KEY.run_id, task_id=KEY.task_id, epoch=1)
        assert cleared.file_token == KEY.file_token

    def test_mapped_tasks_have_tokens_of_their_own(self):
        mapped = [
            OperationKey(dag_id=KEY.dag_id, run_id=KEY.run_id, task_id=KEY.task_id, map_index=index)
            for index in range(20)
        ]
        assert len({key.file_token for key in mapped}) == 20


class TestWhatGoesIntoTheSummary:
    """Each snapshot tells which task made it; nobody else may write these entries."""

    def test_all_parts_are_there_as_text(self):
        assert KEY.summary(2) == {
            "airflow.operation-key": str(KEY),
            "airflow.dag-id": "load",
            "airflow.run-id": "scheduled__2026-01-01T00:00:00+00:00",
            "airflow.task-id": "group.append",
            "airflow.map-index": "-1",
            "airflow.try-number": "2",
        }

    @pytest.mark.parametrize("name", ["airflow.operation-key", "airflow.anything", "operation"])
    def test_a_user_cannot_overwrite_them(self, name):
        with pytest.raises(InvalidInputError, match=f"snapshot property '{name}' is written by the commit itself"):
            check_properties({name: "x"})

    def test_a_value_that_is_not_text_is_refused(self):
        with pytest.raises(InvalidInputError, match="snapshot property 'ticket': expected text, got int"):
            check_properties({"ticket": 7})


class TestWhatGoesIntoXCom:
    """XCom holds ids and counts; ids of 64 bits are text."""

    def test_the_snapshot_id_is_text(self):
        result = WriteResult(table="a.b", branch="main", outcome="committed", snapshot_id=2**62 + 1)
        assert result.to_xcom()["snapshot_id"] == "4611686018427387905"

    @pytest.mark.parametrize(("outcome", "by_this_try"), [("committed", True), ("found", False), ("nothing", False)])
    def test_it_says_whether_this_try_did_the_work(self, outcome, by_this_try):
        assert WriteResult(table="a.b", branch="main", outcome=outcome).to_xcom()["done_by_this_try"] is by_this_try
