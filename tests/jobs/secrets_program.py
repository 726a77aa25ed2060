"""Runs jobs whose functions are larger than Spark keeps in its messages, and waits to be stopped; a Spark program."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.spark import package
from airflow_iceberg.jobs.spark.read_table import read_table
from airflow_iceberg.jobs.spark.run import run_spark
from airflow_iceberg.storage.stores.fsspec_io import load_file_io


def main(session, order):
    assert package.archive(), f"the core was imported from {package.ROOT} and not from the zip"
    given = json.loads(Path(order).read_text())
    frame = read_table(session, given["table"], storage=given["storage"])
    rows = frame.collect()
    io = load_file_io()
    for location in given["plans"]:
        result = run_spark(JobPlan.from_json(io.read(location)), io, session, storage=given["storage"])
        assert result.error is None, result.error
    # A frame keeps what Spark has written for it.
    return frame, len(rows)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    frame, count = main(spark, sys.argv[1] + "/order.json")
    (folder / "ran").write_text(str(count))
    while not (folder / "stop").exists():
        time.sleep(0.05)
    spark.stop()
    (folder / "stopped").touch()
    while True:
        time.sleep(0.05)
