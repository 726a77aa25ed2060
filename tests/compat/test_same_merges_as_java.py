"""The same rows as Iceberg Java's MERGE and UPDATE: generated cases of types × transforms × versions × deletes × modes.

Java makes a table, Java and we do the same statement on a copy of it each, and the rows are compared: with Java's, and
as Iceberg Java, PyIceberg and DuckDB read ours; in version 3 with the row ids. A fixed sample runs with the other
tests, an eighth of all cases with the services and all with `make stress`, by turns with DuckDB and on Spark; other
cases are had by

    CASES=1000 CASES_SEED=7 make stress ARGS=tests/compat/test_same_merges_as_java.py
"""

import os

import pytest

from tests.compat.test_same_rows_as_java import read_by_pyiceberg
from tests.support.duck_reader import DuckReader
from tests.support.jobs_on_spark import runs
from tests.support.merge_cases import DUCKDB, PER_BASE, SPARK, generate
from tests.support.merge_runs import MergeRunner, judge
from tests.support.sampling import SEED
from tests.support.spark_programs import SPARK_4

CHOSEN = (int(os.environ.get("CASES", "280")), int(os.environ.get("CASES_SEED", SEED or 1)))
CASES = generate(*CHOSEN)
SAMPLE = [case for case in generate(100, 1) if case.number // PER_BASE in (0, 3, 5)][::2]


@pytest.fixture(scope="module")
def runner(java, warehouse):
    with DuckReader() as duck:
        yield MergeRunner(java, warehouse, {"pyiceberg": read_by_pyiceberg, "duckdb": duck.rows}, "merges")


def check(runner, case, record_property, dialect=DUCKDB, run=None):
    outcome = runner.run_merge(case, dialect, run, again=case.number % 6 == 0)
    wrong, departures = judge(case, outcome)
    record_property("another answer", sorted(departures))
    assert not wrong, f"{case}\n" + "\n".join(wrong)


@pytest.mark.java
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_sample(runner, case, record_property):
    check(runner, case, record_property)


@pytest.mark.java
@pytest.mark.services
@pytest.mark.sample(8)
@pytest.mark.generated
@pytest.mark.parametrize("case", [case for case in CASES if case.number % 2], ids=lambda case: case.name)
def test_every_case(runner, case, record_property):
    check(runner, case, record_property)


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.services
@pytest.mark.sample(8)
@pytest.mark.generated
@pytest.mark.parametrize("case", [case for case in CASES if not case.number % 2], ids=lambda case: case.name)
def test_every_case_on_spark(runner, spark_of, case, record_property):
    check(runner, case, record_property, SPARK, runs(spark_of(SPARK_4)))
