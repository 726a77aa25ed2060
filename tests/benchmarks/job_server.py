"""The cluster's side of our jobs: one Spark session that runs job plans one after the other, for `sessions.OurSpark`.

Started by path, with the zip of the core on PYTHONPATH and nothing else of this repository, as spark-submit would.
Reads locations of plans from standard input and answers each with a line once its result document is written.
"""

import os
import sys

from pyspark.sql import SparkSession

import airflow_iceberg
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.spark.run import run_spark
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

assert ".zip" in airflow_iceberg.__file__, f"the core was imported from {airflow_iceberg.__file__}, not from the zip"

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Spark prints must not mix with the answers
    io = load_file_io()
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    answers.write(f"spark {session.version}\n")
    answers.flush()
    for line in sys.stdin:
        location = line.strip()
        result = run_spark(JobPlan.from_json(io.read(location), path=location), io, session)
        answers.write(f"{result.status} {dict(result.timings)}\n")
        answers.flush()
    session.stop()
