"""What events say of a commit, without Airflow: which event it is."""

from dataclasses import replace

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.operations.reports.commit import CommitReport
from tests.support.builders import id_rows, new_table

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")


class TestTheIdOfAnEvent:
    """A consumer that has seen it may leave the event out."""

    def of(self, table, result):
        return CommitReport.of(table, result, verb="rollback").to_event()["event_id"]

    def test_a_rollback_is_not_the_commit_of_the_snapshot_that_it_goes_back_to(self, tmp_path):
        table = new_table(tmp_path)
        first = table.append(id_rows([1]), operation_key=KEY)
        committed = self.of(table, first)
        table.append(id_rows([2]))
        back = table.rollback_to_snapshot(first.snapshot_id, operation_key=KEY)
        assert committed == f"{table.metadata.table_uuid}/{first.snapshot_id}"
        assert self.of(table, back) == f"{table.metadata.table_uuid}/{KEY}"

    def test_a_table_without_a_uuid_has_its_name_as_in_the_events_of_watchers(self, tmp_path):
        table = new_table(tmp_path, properties={"format-version": "1"})
        result = table.append(id_rows([1]))
        report = CommitReport.of(table, result, verb="append")
        old = replace(report, metadata=replace(report.metadata, table_uuid=None))  # as of an old writer
        assert old.to_event()["event_id"] == f"db.t/{result.snapshot_id}"
