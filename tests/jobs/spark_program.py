"""Runs several plans in one Spark session, so that a version of Spark is started once for all cases.

Started by spark-submit with the zip of the core in --py-files and nothing else; as `jobs/main.py`, but for several.
"""

import sys

from pyspark.sql import SparkSession

from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.spark import package
from airflow_iceberg.jobs.spark.run import run_spark
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

assert package.archive(), f"the core was imported from {package.ROOT} and not from the zip"

if __name__ == "__main__":
    io = load_file_io()
    if "--connect" in sys.argv:
        session = SparkSession.builder.remote("local[2]").getOrCreate()
    else:
        session = SparkSession.builder.master("local[2]").getOrCreate()
    for location in (argument for argument in sys.argv[1:] if argument != "--connect"):
        run_spark(JobPlan.from_json(io.read(location), path=location), io, session)
    session.stop()
