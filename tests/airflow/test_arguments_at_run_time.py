"""Arguments that are nothing at run time, in tasks that Airflow runs: single ones, mapped ones and groups."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, task, task_group

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operators import (
    IcebergAppendOperator,
    IcebergDeleteOperator,
    IcebergMergeOperator,
    IcebergTagOperator,
    IcebergUndoOperator,
    IcebergUpdateOperator,
    Input,
    RowCount,
    iceberg_wap,
)

append = partial(IcebergAppendOperator, table="s.t", spark_conn_id=None)
NOT_LEFT_OUT = "at run time, although the DAG gives a value"


@pytest.fixture
def loaded(lake):
    lake.create(schema={"id": "long"}, properties={"format-version": "2"})
    lake.append([1, 2, 3])
    return lake


@task
def nothing() -> Any:
    """Return nothing."""


@task
def values(*given: Any) -> Any:
    """Return what is given."""
    return list(given)


@task
def named() -> str:
    """Return the name of a table."""
    return "s.t"


def refused(run, name: str) -> None:
    assert run.state == "failed"
    assert [type(one).__name__ for one in run.failures] == ["AirflowFailException"]  # and no retry
    assert str(run.failures[0]).startswith(f"{name} is ")
    assert NOT_LEFT_OUT in str(run.failures[0])


class TestOfATask:
    """A task whose argument is nothing fails, once, and changes nothing."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("kind", "given", "name"),
        [
            (IcebergUpdateOperator, {"set": {"id": "0"}}, "where"),
            (IcebergDeleteOperator, {"predicate": "true"}, "max_rows"),
            (IcebergTagOperator, {"tag": "a"}, "snapshot_id"),
            (IcebergUndoOperator, {}, "undo_map_index"),
        ],
        ids=lambda value: getattr(value, "__name__", None),
    )
    def test_it_changes_nothing(self, loaded, new_dag, run_dag, kind, given, name):
        engine = {} if kind in (IcebergTagOperator, IcebergUndoOperator) else {"spark_conn_id": None}
        with new_dag(retries=2) as dag:
            kind(task_id="task", table="s.t", **given, **{name: nothing()}, **engine)
        refused(run_dag(dag), name)
        assert loaded.ids() == [1, 2, 3]
        assert [*loaded.load().refs] == ["main"]

    @pytest.mark.costly
    def test_a_snapshot_of_an_input(self, loaded, new_dag, run_dag):
        with new_dag() as dag:
            none = append(task_id="none", files=str(loaded.folder / "none-*.parquet"), multiple_outputs=True)
            inputs = {"t": Input("s.t", snapshot_id=none.output["snapshot_id"])}
            append(task_id="task", table="s.u", sql="select id from t", inputs=inputs)
        loaded.create("s.u")
        refused(run_dag(dag), "Input.snapshot_id")
        assert loaded.ids("s.u") == []

    @pytest.mark.costly
    @pytest.mark.parametrize(("text", "ids"), [("False", None), (True, [1, 2, 3, 9])])
    def test_a_truth_value_is_the_one_that_it_says(self, loaded, new_dag, run_dag, text, ids):
        loaded.write_file("more.parquet", [3, 9])
        with new_dag(params={"f": text}) as dag:
            IcebergMergeOperator(
                task_id="task",
                table="s.t",
                on=["id"],
                files=str(loaded.folder / "source/more.parquet"),
                upsert="{{ params.f }}",
                spark_conn_id=None,
            )
        run = run_dag(dag)
        if ids is None:
            assert "a merge needs either clauses or upsert=True" in run.refusal
        assert loaded.ids() == (ids or [1, 2, 3])


class TestOfAMappedTask:
    """What a task before has given to one of its copies is resolved before the copy is made."""

    @pytest.mark.costly
    @pytest.mark.parametrize("by", ["argument", "arguments"])
    @pytest.mark.parametrize("value", [None, "None"])
    def test_the_copy_is_refused(self, loaded, new_dag, run_dag, by, value):
        with new_dag() as dag:
            begun = IcebergDeleteOperator.partial(task_id="task", table="s.t", predicate="id = 1", spark_conn_id=None)
            if by == "argument":
                begun.expand(max_rows=values(value))
            else:
                begun.expand_kwargs(values({"max_rows": value}))
        refused(run_dag(dag), "max_rows")
        assert loaded.ids() == [1, 2, 3]

    @pytest.mark.costly
    def test_the_others_do_their_work_and_what_is_written_in_the_dag_is_left_out(self, loaded, new_dag, run_dag):
        with new_dag() as dag:
            IcebergDeleteOperator.partial(
                task_id="task", table="s.t", max_rows=None, spark_conn_id=None, branch="{{ 'main' }}"
            ).expand(predicate=values("id = 1", "id = 2"))
            IcebergDeleteOperator.partial(task_id="other", table="s.t", spark_conn_id=None).expand_kwargs(
                [{"predicate": "id = 3", "max_rows": None}]
            )
        assert run_dag(dag).state == "success"
        assert loaded.ids() == []

    @pytest.mark.costly
    def test_of_a_decorator(self, loaded, new_dag, run_dag):
        with new_dag() as dag:

            @task.iceberg_append(table="s.t", branch="{{ none }}")
            def rows(id: int) -> Any:
                return pa.table({"id": [id]})

            rows.expand(id=values(7))
        refused(run_dag(dag), "branch")
        assert loaded.ids() == [1, 2, 3]


class TestDataIsNotRefused:
    """What an author names himself is his, also if a name of it is one of ours."""

    @pytest.mark.costly
    def test_of_functions_and_placeholders(self, loaded, new_dag, run_dag):
        with new_dag() as dag:

            @task.iceberg_append(table="s.t")
            def rows(table: str, region: str, more: Any = None) -> Any:
                return pa.table({"id": [7]})

            rows(table="s.q", region="", more=nothing())
            params = {"table": "x", "none": ""}
            properties = {"table": "x", "note": ""}
            sql = "select 8 as id where $table = 'x' and $none = ''"
            append(task_id="sql", table="s.t", sql=sql, sql_params=params, snapshot_properties=properties)
        run = run_dag(dag)
        assert run.state == "success", run.failures
        assert loaded.ids() == [1, 2, 3, 7, 8]

    @pytest.mark.costly
    def test_a_write_key_may_be_a_number(self, loaded, new_dag, run_dag):
        file = str(loaded.write_file("new.parquet", [7]))
        with new_dag() as dag:
            IcebergAppendOperator.partial(task_id="task", table="s.t", spark_conn_id=None).expand_kwargs(
                values({"files": file, "write_key": 7}, {"files": file, "write_key": 8})
            )
        run = run_dag(dag)
        assert run.state == "success", run.failures
        assert loaded.ids() == [1, 2, 3, 7, 7]


class TestPublishingManyTables:
    """A group for the table of a mapped group publishes as many tables as a task names."""

    @pytest.mark.costly
    def test_each_gets_its_rows(self, loaded, new_dag, run_dag):
        loaded.create("s.u")
        source = str(loaded.write_file("new.parquet", [7]))
        with new_dag() as dag:

            @task_group
            def publish(table):
                with iceberg_wap(table=table, audits=[RowCount(min=1)]) as wap:
                    append(task_id="load", table=table, branch=wap.branch, files=source)

            publish.expand(table=values("s.t", "s.u"))
        assert run_dag(dag).state == "success"
        assert (loaded.ids(), loaded.ids("s.u")) == ([1, 2, 3, 7], [7])
        assert [*loaded.load().refs] == ["main"]

    @pytest.mark.costly
    def test_a_table_that_a_task_names(self, loaded, new_dag, run_dag):
        source = str(loaded.write_file("new.parquet", [7]))
        with new_dag() as dag, iceberg_wap(table=named(), audits=[RowCount(min=1)]) as wap:
            append(task_id="load", branch=wap.branch, files=source)
        assert run_dag(dag).state == "success"
        assert loaded.ids() == [1, 2, 3, 7]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"tables": "{{ x }}"}, "make the group with table=… inside a @task_group"),
            ({"tables": ["s.t", 1]}, "has tables that are no list of names"),
            ({"table": 7}, "table=7, expected 'sales.orders', or the value of a task"),
            ({"table": "s.t", "approval": "False"}, "approval is 'False', expected True, False, or arguments"),
            ({}, "iceberg_wap needs table='sales.orders'"),
        ],
    )
    def test_what_cannot_be_is_said_when_the_dag_is_parsed(self, given, message):
        with DAG("a", schedule=None), pytest.raises(InvalidInputError, match=message.replace("…", ".")):
            iceberg_wap(audits=[RowCount(min=1)], **given)

    def test_tables_of_a_task_have_a_way(self):
        with DAG("a", schedule=None), pytest.raises(InvalidInputError, match="inside a @task_group, and expand that"):
            iceberg_wap(tables=values("s.t"), audits=[RowCount(min=1)])
