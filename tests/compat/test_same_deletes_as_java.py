"""The same rows as Iceberg Java's DELETE, by predicates that only an engine can evaluate; and two more Sparks.

Functions, casts, columns compared with columns, `in (select …)` and `exists`, with null keys and NaN, over the tables
of `test_same_merges_as_java`. A fixed sample runs with the other tests, an eighth of
all cases with the services, all of them by `make stress`; others are had by

    CASES=1000 CASES_SEED=7 make stress ARGS=tests/compat/test_same_deletes_as_java.py
"""

import os

import pytest

from tests.compat.test_same_merges_as_java import check
from tests.compat.test_same_rows_as_java import read_by_pyiceberg
from tests.support.duck_reader import DuckReader
from tests.support.jobs_on_spark import runs
from tests.support.merge_cases import PER_BASE, SPARK, generate, generate_deletes
from tests.support.merge_runs import MergeRunner
from tests.support.sampling import SEED
from tests.support.spark_programs import SPARK_4, SPARK_35

CHOSEN = (int(os.environ.get("CASES", "120")), int(os.environ.get("CASES_SEED", SEED or 3)))
WITHOUT_ANSI = ("spark.sql.ansi.enabled", "false")
CASES = generate_deletes(*CHOSEN)
SAMPLE = [case for case in generate_deletes(40, 3) if case.number // PER_BASE in (0, 4)][::2]
# A sample of all kinds of statements for each of the other Sparks.
OTHERS = [*generate(200, 5)[::20], *generate_deletes(100, 5)[::15]]


@pytest.fixture(scope="module")
def runner(java, warehouse):
    with DuckReader() as duck:
        yield MergeRunner(java, warehouse, {"pyiceberg": read_by_pyiceberg, "duckdb": duck.rows}, "deletes")


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


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.services
@pytest.mark.sample(8)
@pytest.mark.generated
@pytest.mark.parametrize(("version", "setting"), [(SPARK_35, ()), (SPARK_4, WITHOUT_ANSI)], ids=["3.5", "ansi off"])
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_other_sparks(runner, spark_of, case, version, setting, record_property):
    check(runner, case, record_property, SPARK, runs(spark_of(version), setting))
