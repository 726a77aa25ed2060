"""Runs the jobs of a table on a Spark of the tests: `Work(table, run=runs(spark)(table))`."""

from pathlib import Path

from airflow_iceberg.jobs.protocol.result import JobResult

JOBS = Path(__file__).parents[1] / "jobs"


def runs(spark, setting=()):
    """Return what runs the jobs of a table on a Spark.

    Args:
        setting: one of Spark's, which has another value meanwhile: its name and the value.
    """
    program = JOBS / ("spark_program_with.py" if setting else "spark_program.py")

    def run_on(table):
        def run(plan):
            spark.run(program, *setting, plan.location)
            return JobResult.from_json(table.io.read(plan.result_location))

        return run

    return run_on
