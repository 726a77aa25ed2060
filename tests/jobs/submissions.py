"""The versions of Spark that programs are submitted to, and files for them to load."""

import subprocess
from pathlib import Path

import pytest

from airflow_iceberg.jobs.protocol.source import Source
from tests.support.spark_programs import SPARK_4, SPARK_4_CONNECT, SPARK_35, submission

HERE = Path(__file__).parent
# With `make test` a short program runs on 3.5 as well (`test_spark_program`).
VERSIONS = [
    pytest.param(SPARK_4, marks=pytest.mark.spark),
    pytest.param(SPARK_4_CONNECT, marks=[pytest.mark.spark, pytest.mark.services]),
    pytest.param(SPARK_35, marks=[pytest.mark.java, pytest.mark.services]),
]


def submit(version: str, folder: Path, program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command, environ = submission(version, folder)
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
