"""Clauses × sides: names that Spark with Iceberg Java refuses are refused here, others have its values; both engines.

A sample runs with the services, all cases with `make stress`.
"""

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.clause_cases import COLUMNS, FEED, SOURCE, TARGET, cases, feed, fill, sent
from tests.support.jobs_on_spark import runs
from tests.support.spark_programs import SPARK_4, SPARK_35

CASES = cases()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    table = new_table(tmp_path_factory.mktemp("feed"), schema={"id": "long", "k": "long"})
    table.append(feed())
    return {"feed": Input(open=lambda: table)}


def check(case, folder, inputs, dialect, run=None):
    table = fill(new_table(folder, schema=COLUMNS))
    before, clause = table.current_snapshot(), case.clause.format(feed="feed")
    given = inputs if "from feed" in clause else {}
    request = MergeRequest(rows=sent(), on=["id"], clauses=clause, dialect=dialect, inputs=given)
    work = Work(table) if run is None else Work(table, run=run(table))
    if case.is_refused:
        with pytest.raises(InvalidInputError):
            merge(work, request)
        assert table.refresh().current_snapshot() == before
    else:
        merge(work, request)
    assert rows(table) == case.expected


def rows(table):
    return {row["id"]: row["v"] for row in table.refresh().scan().to_arrow().to_pylist()}


@pytest.mark.generated
@pytest.mark.sample(8)
@pytest.mark.parametrize("case", [case for case in CASES if not case.text.is_spark], ids=lambda case: case.name)
def test_by_duckdb(case, tmp_path, inputs):
    check(case, tmp_path, inputs, "duckdb")


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.generated
@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_spark(case, tmp_path, inputs, spark_of):
    version = SPARK_35 if case.number % 3 == 0 else SPARK_4
    check(case, tmp_path, inputs, "spark", runs(spark_of(version)))


@pytest.mark.java
@pytest.mark.services
@pytest.mark.generated
@pytest.mark.sample(8)
@pytest.mark.parametrize("case", [case for case in CASES if case.text.is_java], ids=lambda case: case.name)
def test_by_java(case, catalog, java):
    """What the model says of Java is true."""
    name = f"db.clause_{case.number}"
    values = ", ".join(f"({key}L, {k}L)" for key, k in FEED)
    java.sql(
        f"create table if not exists ref.db.clause_feed using iceberg as select * from values {values} as t(id, k)"
    )
    struct = "named_struct('x', {})".format
    made = [f"({r['id']}L, {r['v']}L, '{r['part']}', {struct(str(r['s']['x']) + 'L')})" for r in TARGET]
    java.sql(f"create table ref.{name} using iceberg as select * from values {', '.join(made)} as t(id, v, part, s)")
    given = ", ".join(f"({r['id']}L, {r['v']}L, {r['w']}L, {struct(str(r['s']['x']) + 'L')})" for r in SOURCE)
    statement = (
        f"merge into ref.{name} as target using (select * from values {given} as t(id, v, w, s)) as source "
        f"on target.id = source.id {case.clause.format(feed='ref.db.clause_feed')}"
    )
    is_refused = case.is_refused or (case.is_condition and "select" in case.clause)
    if is_refused:
        with pytest.raises(RuntimeError):
            java.sql(statement)
    else:
        java.sql(statement)
    if not (is_refused and not case.is_refused):
        assert rows(Table.load(catalog, name)) == case.expected
