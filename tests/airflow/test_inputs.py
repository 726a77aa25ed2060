"""Inputs of operators: tables of this or another connection, in the words of a DAG's author."""

import json

import pyarrow as pa
import pytest

from airflow_iceberg.operators import IcebergAppendOperator, IcebergOverwriteOperator, Input
from tests.airflow.conftest import Lake, operators

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id=None)
overwrite = operators(IcebergOverwriteOperator, task_id="overwrite", spark_conn_id=None)


@pytest.fixture
def orders(lake):
    lake.create()
    orders = lake.create("s.orders", {"id": "long", "day": "string"})
    orders.append(pa.table({"id": [1, 2], "day": ["2026-01-01", "2026-01-02"]}))
    return orders


class TestATaskWithInputs:
    """The query runs in this process; the commit, XCom and the asset events say what was read."""

    @pytest.mark.services
    def test_a_name_is_a_table_of_the_same_catalog(self, lake, orders, run_task):
        run = run_task(
            append,
            sql="select id from orders where day = $day",
            sql_params={"day": "{{ ds }}"},
            inputs={"orders": "s.orders"},
        )
        assert run.state == "success", run.failures
        assert lake.ids() == [1]
        inputs = run.result("append")["inputs"]
        read = inputs["orders"]
        assert (read["table"], read["snapshot-id"]) == ("s.orders", str(orders.current_snapshot().snapshot_id))
        summary = lake.load().current_snapshot().summary
        assert json.loads(summary["airflow.inputs"]) == inputs

    @pytest.mark.services
    def test_names_may_have_dots_and_more(self, lake, run_task):
        """What XCom names is the same table in the next task."""
        lake.create("s.x.t")
        names = ("s.`x.t`", "s.`or.d``ers 5%`")
        for name in names:
            lake.create(name)
        lake.append([1, 2], names[1])
        first = run_task(append, table='s."x.t"', sql="select id from o where id > 1", inputs={"o": names[1]})
        assert first.state == "success", first.failures
        result = first.result("append")
        assert (result["table"], result["inputs"]["o"]["table"]) == names
        again = run_task(append, table=names[1], sql="select id + 5 as id from o", inputs={"o": result["table"]})
        assert again.state == "success", again.failures
        assert (lake.ids(names[0]), lake.ids(names[1]), lake.ids("s.x.t")) == ([2], [1, 2, 7], [])

    @pytest.mark.services
    @pytest.mark.parametrize("as_dictionary", [False, True])
    def test_everything_of_an_input_is_a_template(self, lake, orders, run_task, as_dictionary):
        orders.create_branch("audit")
        orders.append(pa.table({"id": [9], "day": ["2026-01-01"]}), branch="audit")
        given = {
            "table": "s.{{ params.name }}",
            "ref": "{{ params.ref }}",
            "row_filter": "day = :day",
            "predicate_params": {"day": "{{ ds }}"},
        }
        one = given if as_dictionary else Input(**given)
        params = {"name": "orders", "ref": "audit"}
        run = run_task(append, sql="select id from o", inputs={"o": one}, params=params)
        assert run.state == "success", run.failures
        assert lake.ids() == [1, 9]

    @pytest.mark.services
    def test_another_connection(self, lake, run_task, tmp_path, monkeypatch):
        lake.create()
        (tmp_path / "other").mkdir()
        other = Lake(tmp_path / "other")
        other.create("fx.rates")
        other.append([7], "fx.rates")
        monkeypatch.setenv("AIRFLOW_CONN_FX", json.dumps(other.connection))
        run = run_task(append, sql="select id from rates", inputs={"rates": Input("fx.rates", iceberg_conn_id="fx")})
        assert run.state == "success", run.failures
        assert lake.ids() == [7]

    @pytest.mark.services
    def test_an_overwrite(self, lake, orders, run_task):
        lake.append([2, 5])
        run = run_task(
            overwrite, sql="select id from orders", inputs={"orders": "s.orders"}, overwrite_filter="id <= 2"
        )
        assert run.state == "success", run.failures
        assert lake.ids() == [1, 2, 5]


class TestWhatGoesWrong:
    """The task fails at once, and says which input it is."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"inputs": {"orders": "s.nope"}}, "input 'orders': there is no table s.nope"),
            ({"inputs": {"orders": 5}}, "input 'orders' is 5, expected the name of a table, or Input("),
            ({"inputs": {"orders": {"table": "s.orders", "branch": "x"}}}, "branch"),
            ({"inputs": ["s.orders"]}, "expected names and values"),
            ({"inputs": {"orders": Input("s.orders", snapshot_id="x")}}, "snapshot_id is 'x', expected a whole number"),
            ({"inputs": {"orders": "s.orders", "o2": "s.orders"}}, "inputs has 'o2', and the query does not read it"),
            ({"inputs": {}}, "Table with name orders does not exist"),
        ],
    )
    def test_it_is_named(self, lake, orders, run_task, arguments, message):
        run = run_task(append, sql="select id from orders", **arguments)
        assert run.state == "failed"
        assert message in str(run.failures)
        assert lake.load().current_snapshot() is None
