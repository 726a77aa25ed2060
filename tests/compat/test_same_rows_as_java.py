"""The same rows as Iceberg Java: generated cases of types × transforms × versions × deletes × modes × operations.

Java makes a table, Java and we do the same statement on a copy of it each, and the rows are compared: with what SQL
says, with Java's, and as Iceberg Java, PyIceberg and DuckDB read ours. A fixed sample runs with the other tests, an
eighth of all cases with the services, all with `make stress`; other cases are had by

    CASES=1000 CASES_SEED=7 make stress ARGS=tests/compat/test_same_rows_as_java.py
"""

import os

import pytest
from pyiceberg.table import StaticTable

from airflow_iceberg.table import Table
from tests.support.case_judging import judge
from tests.support.case_runs import Runner
from tests.support.case_types import KINDS, arrow_rows
from tests.support.cases import PER_BASE, generate
from tests.support.duck_reader import DuckReader
from tests.support.sampling import SEED

pytestmark = pytest.mark.java

CHOSEN = (int(os.environ.get("CASES", "80")), int(os.environ.get("CASES_SEED", SEED or 1)))
# The cases of some tables, whatever is chosen.
SAMPLE = [case for case in generate(80, 1) if case.number // PER_BASE in (0, 1, 3)][::4]


def read_by_pyiceberg(location):
    return StaticTable.from_metadata(location).scan().to_arrow()


@pytest.fixture(scope="module")
def runner(java, warehouse):
    with DuckReader() as duck:
        yield Runner(java, warehouse, {"pyiceberg": read_by_pyiceberg, "duckdb": duck.rows}, "cases")


def check(runner, case, record_property):
    wrong, departures = judge(case, runner.run(case))
    record_property("Java departs from SQL", sorted(departures))
    assert not wrong, f"{case}\n" + "\n".join(wrong)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_sample(runner, case, record_property):
    check(runner, case, record_property)


@pytest.mark.services
@pytest.mark.sample(8)
@pytest.mark.generated
@pytest.mark.parametrize("case", generate(*CHOSEN), ids=lambda case: case.name)
def test_every_case(runner, case, record_property):
    check(runner, case, record_property)


@pytest.mark.services
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.sql is None], ids=str)
def test_types_that_spark_does_not_have(java, catalog, kind):
    """Where a case has one of them Java does no statement of its own, and reads by its generic reader."""
    name = "db.no_spark_" + kind.type
    table = Table.create(catalog, name, schema={"p": kind.type}, properties={"format-version": str(kind.since)})
    table.append(arrow_rows({"p": kind}, [{"p": value} for value in kind.values]))
    with pytest.raises(RuntimeError, match=r"Cannot convert|not supported|UnsupportedOperation"):
        java.load(table.metadata_location)
