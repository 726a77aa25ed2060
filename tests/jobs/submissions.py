"""Programs submitted to Spark as users submit them: 3.5 and 4, by spark-submit and by Spark Connect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.installation import environment, spark_home
from airflow_iceberg.jobs.spark.package import build_zip
from tests.support.iceberg_java_env import java_environ, java_python

HERE = Path(__file__).parent
SPARK_4, SPARK_4_CONNECT, SPARK_35 = "spark-4", "spark-4-connect", "spark-3.5"
# Every Spark takes a minute; with `make test` the short program of `test_spark_program` runs on 3.5 as well.
VERSIONS = [
    pytest.param(SPARK_4, marks=pytest.mark.spark),
    pytest.param(SPARK_4_CONNECT, marks=[pytest.mark.spark, pytest.mark.services]),
    pytest.param(SPARK_35, marks=[pytest.mark.java, pytest.mark.services]),
]


def submission(version: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the begin of a spark-submit command and its variables; our package is in the zip and nowhere else."""
    if version == SPARK_35:
        environ = java_environ()
        submit = java_python().parent / "spark-submit"
    else:
        environ = {**os.environ, **environment(), "PYSPARK_PYTHON": sys.executable}
        submit = spark_home() / "bin" / "spark-submit"
    environ = {**{k: v for k, v in environ.items() if k != "PYTHONPATH"}, "SPARK_LOCAL_IP": "127.0.0.1"}
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.session.timeZone=Asia/Tokyo"]
    command = [str(submit), *conf, "--conf", f"spark.sql.warehouse.dir={folder}/warehouse"]
    return [*command, "--py-files", f"{build_zip(folder / 'zip')},{HERE / 'frames.py'}"], environ


def submit(version: str, folder: Path, program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command, environ = submission(version, folder)
    if version == SPARK_4_CONNECT:
        # A Connect client is a plain Python program; it sends the zip to its server itself.
        command = [sys.executable]
        environ = {**environ, "PYTHONPATH": f"{build_zip(folder / 'zip')}:{HERE}"}
    return subprocess.run(
        [*command, str(program), *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def write_csv_files(folder: Path, *, wrong: int | None = None) -> Source:
    folder.mkdir()
    for number in range(12):
        value = "oops" if number == wrong else number + 100
        lines = f"id,name,day\n{number},a,2026-01-0{number % 5 + 1}\n{value},b,\n"
        (folder / f"{number:02d}.csv").write_text(lines)
    return Source.from_files(f"{folder}/*.csv")
