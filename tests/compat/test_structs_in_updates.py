"""Values of structs in updates, upserts and merges: random ones, in both modes and on both engines, and Iceberg Java's.

The model is exact resolution by name at every depth; that it is what Spark with Iceberg Java does is tried as well. A
small sample runs with the other tests, more with the services, all cases with `make stress`.
"""

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.jobs_on_spark import runs
from tests.support.sampling import SEED
from tests.support.spark_programs import SPARK_4, SPARK_35
from tests.support.struct_cases import DUCKDB, REFUSED, SPARK, arrow, cases, literal, plain, shorthand, sql_type

CASES = cases(252, SEED)


def do(case, table, dialect, run=None):
    work = Work(table) if run is None else Work(table, run=run(table))
    if case.statement == "update":
        text = case.literal(dialect)
        return update(work, UpdateRequest(set={"s": text}, where="id = 1", dialect=dialect, mode=case.mode))
    source = case.arrow()
    if case.source == "query":
        key = f"cast({case.key} as bigint)"
        source = Source.from_sql(f"select {key} as id, {case.literal(dialect)} as s", dialect=dialect)
    given = {"upsert": True} if case.statement == "upsert" else {"clauses": case.clauses}
    return merge(work, MergeRequest(rows=source, on=["id"], dialect=dialect, mode=case.mode, **given))


def rows(table, case):
    found = table.refresh().scan().to_arrow().to_pylist()
    return {row["id"]: plain(row["s"], case.type) for row in found}


def check(case, folder, dialect, run=None):
    version = "3" if case.number % 3 else "2"
    schema = {"id": "long", "s": shorthand(case.type)}
    table = new_table(folder, schema=schema, properties={"format-version": version})
    table.append(stored(case))
    if case.expected == REFUSED:
        with pytest.raises(InvalidInputError, match=r"gives 's.* a struct with|is not in the table"):
            do(case, table, dialect, run)
    else:
        do(case, table, dialect, run)
    assert rows(table, case) == case.rows, case


def stored(case):
    return pa.table({"id": pa.array([1], pa.int64()), "s": pa.array([case.stored], arrow(case.type))})


@pytest.mark.generated
@pytest.mark.sample(24)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_by_duckdb(case, tmp_path):
    check(case, tmp_path, DUCKDB)


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.generated
@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_on_spark(case, tmp_path, spark_of):
    version = SPARK_35 if case.number % 3 == 0 else SPARK_4
    check(case, tmp_path, SPARK, runs(spark_of(version)))


@pytest.mark.java
@pytest.mark.generated
@pytest.mark.sample(40)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_by_java(case, catalog, java):
    """What the model says of Java is true."""
    name = f"db.structs_{case.number}"
    java.sql(f"create table ref.{name} (id bigint, s {sql_type(case.type, SPARK)}) using iceberg")
    java.sql(f"insert into ref.{name} values (1L, {literal(case.stored, case.type, SPARK)})")
    value = case.literal(SPARK)
    statement = f"update ref.{name} set s = {value} where id = 1"
    if case.statement != "update":
        source = f"(select {case.key}L as id, {value} as s) as source"
        on = f"merge into ref.{name} as target using {source} on target.id = source.id"
        statement = f"{on} {case.clauses}"
    if case.expected == REFUSED:
        with pytest.raises(RuntimeError, match=r"CANNOT_FIND_DATA|EXTRA_STRUCT_FIELDS"):
            java.sql(statement)
    else:
        java.sql(statement)
    assert rows(Table.load(catalog, name), case) == case.rows, case
