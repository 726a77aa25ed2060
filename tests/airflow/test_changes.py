"""Changes of a table as an input of operators: what is committed, and what a DAG's author may write."""

import json
import logging

import pyarrow as pa
import pytest

from airflow_iceberg.operators import Changes, IcebergAppendOperator, Input
from tests.airflow.conftest import operators

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)


@pytest.fixture
def orders(lake):
    lake.create()
    orders = lake.create("s.orders")
    orders.append(pa.table({"id": [1]}))
    orders.create_tag("start")
    orders.append(pa.table({"id": [2]}))
    return orders


def ids_of(run, lake) -> list[int]:
    assert run.state == "success", run.failures
    return lake.ids()


class TestATaskWithChanges:
    """Each run of the DAG reads on where the one before has stopped."""

    @pytest.mark.services
    def test_the_first_run_reads_all_rows_and_the_commit_says_which(self, lake, orders, run_task):
        run = run_task(append, sql="select id from o", inputs={"o": Changes("s.orders", since="last")})
        assert ids_of(run, lake) == [1, 2]
        inputs = run.result("append")["inputs"]
        head = str(orders.current_snapshot().snapshot_id)
        assert (inputs["o"]["from-snapshot-id"], inputs["o"]["snapshot-id"]) == (None, head)
        assert json.loads(lake.load().current_snapshot().summary["airflow.inputs"]) == inputs

    @pytest.mark.services
    @pytest.mark.parametrize(
        "since", ["start", "{{ params.start }}", "{{ params.snapshot }}", "{{ params.time }}", "number"]
    )
    def test_since_is_a_tag_a_snapshot_or_a_time_and_may_be_a_template(self, lake, orders, run_task, since):
        first = orders.snapshots()[0]
        moment = f"{pa.scalar(first.timestamp_ms, pa.timestamp('ms', 'UTC')).as_py().isoformat()}"
        params = {"start": "start", "snapshot": str(first.snapshot_id), "time": moment}
        given = first.snapshot_id if since == "number" else since
        one = {"table": "s.orders", "since": given, "mode": "changelog", "net": "{{ params.net }}"}
        params["net"] = "true"
        run = run_task(append, sql="select id from o", inputs={"o": one}, params=params)
        assert 2 in ids_of(run, lake)
        assert lake.ids() == [2] or "time" in str(since)

    @pytest.mark.services
    def test_all_rows(self, lake, orders, run_task):
        run = run_task(append, sql="select id from o", inputs={"o": Changes("s.orders", since=None)})
        assert ids_of(run, lake) == [1, 2]

    @pytest.mark.services
    @pytest.mark.parametrize(("one", "level"), [(Changes("s.orders"), "INFO"), (Input("s.orders"), "WARNING")])
    def test_nothing_new_is_no_warning(self, one, level, lake, orders, run_task, caplog, monkeypatch):
        # Airflow's own logger of a task writes into its log alone.
        monkeypatch.setattr(IcebergAppendOperator, "log", logging.getLogger("airflow_iceberg.test"))
        caplog.set_level("INFO", "airflow_iceberg")
        run = run_task(append, sql="select id from o where id > 2", inputs={"o": one})
        assert run.result("append")["outcome"] == "nothing"
        said = [one for one in caplog.records if "the source has no rows, nothing was committed" in one.getMessage()]
        assert [one.levelname for one in said] == [level]

    @pytest.mark.services
    def test_nothing_new_is_what_on_empty_says(self, lake, orders, run_task):
        head = orders.current_snapshot().snapshot_id
        one = Changes("s.orders", since=head)
        run = run_task(append, sql="select id from o", inputs={"o": one}, on_empty="fail")
        assert run.state == "failed"
        assert "has no rows, and on_empty is 'fail'" in str(run.failures)


@pytest.mark.services
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"since": True}, "since is True, expected 'last', a snapshot id, a tag, a time or None"),
        ({"since": ""}, "Changes.since is '' at run time"),
        ({"since": "nope"}, "input 'o': no branch or tag 'nope'"),
        ({"mode": "all"}, "mode is 'all', expected one of append, changelog"),
        ({"net": True}, "net, compute_updates and identifier_columns are for mode='changelog'"),
        ({"mode": "changelog", "net": "maybe"}, "net is 'maybe', expected true or false"),
        ({"mode": "changelog", "compute_updates": True}, "input 'o': compute_updates needs identifier_columns"),
    ],
)
def test_what_makes_no_sense_fails_at_once(lake, orders, run_task, arguments, message):
    run = run_task(append, sql="select id from o", inputs={"o": Changes("s.orders", **arguments)})
    assert run.state == "failed"
    assert message in str(run.failures)
    assert lake.load().current_snapshot() is None
