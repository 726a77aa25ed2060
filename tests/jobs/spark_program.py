"""Runs several plans in the session that it is given; as `jobs/main.py`, but for several."""

from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.spark import package
from airflow_iceberg.jobs.spark.run import run_spark
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

assert package.archive(), f"the core was imported from {package.ROOT} and not from the zip"


def main(session, *locations):
    io = load_file_io()
    for location in locations:
        run_spark(JobPlan.from_json(io.read(location), path=location), io, session)
