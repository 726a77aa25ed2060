"""Spark as users have it: 3.5 and 4, by spark-submit and by Spark Connect; one of each version a test session.

    spark = spark_of(SPARK_4)                           # the fixture of tests/conftest.py
    spark.run(HERE / "read_program.py", "in", "out")    # its `main` is given the session and these arguments

Our package is in the zip that Spark ships, and nowhere else. Not here: the Spark with Iceberg Java (`iceberg_java`).
As a program, submitted to Spark, this is the other end, which runs one program after the other.
"""

import contextlib
import json
import os
import runpy
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Self

SPARK_4, SPARK_4_CONNECT, SPARK_35 = "spark-4", "spark-4-connect", "spark-3.5"
# What users ship to Spark next to the core.
USERS_CODE = Path(__file__).parents[1] / "jobs" / "frames.py"


def is_spark_3(version: str) -> bool:
    """Return whether it is Spark 3.5: that of Iceberg Java, or that of SPARK_HOME in the place of Spark 4."""
    from airflow_iceberg.jobs.spark.installation import spark_home, spark_version

    return version == SPARK_35 or spark_version(spark_home()) == (3, 5)


def submission(version: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the begin of a spark-submit command and its variables."""
    from airflow_iceberg.jobs.spark.installation import environment, spark_home
    from airflow_iceberg.jobs.spark.package import build_zip
    from tests.support.iceberg_java_env import java_environ, java_python

    if version == SPARK_35:
        environ = java_environ()
        submit = java_python().parent / "spark-submit"
    else:
        environ = {**os.environ, **environment(), "PYSPARK_PYTHON": sys.executable}
        submit = spark_home() / "bin" / "spark-submit"
    environ = {**{k: v for k, v in environ.items() if k != "PYTHONPATH"}, "SPARK_LOCAL_IP": "127.0.0.1"}
    core = build_zip(folder / "zip")
    if version == SPARK_4_CONNECT:
        # A Connect client is a plain Python program; it sends the zip to its server itself.
        return [sys.executable], {**environ, "PYTHONPATH": f"{core}:{USERS_CODE.parent}"}
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.session.timeZone=Asia/Tokyo"]
    command = [str(submit), *conf, "--conf", f"spark.sql.warehouse.dir={folder}/warehouse"]
    return [*command, "--py-files", f"{core},{USERS_CODE}"], environ


class SparkPrograms:
    """One session of a version of Spark, in which programs run one after the other."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version = version
        command, environ = submission(version, folder)
        self._log = folder / "log"
        more = ["--connect"] if version == SPARK_4_CONNECT else []
        with socket.create_server(("127.0.0.1", 0)) as server, self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, __file__, str(server.getsockname()[1]), *more],
                cwd=folder,
                env={**environ, "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            server.settimeout(1)
            connection = self._accept(server)
        self._line = connection.makefile("rw")
        connection.close()

    def _accept(self, server: socket.socket) -> socket.socket:
        deadline = time.monotonic() + 500
        while True:
            with contextlib.suppress(TimeoutError):
                return server.accept()[0]
            alive = self._process.poll() is None and time.monotonic() < deadline
            assert alive, f"Spark does not answer; its log ends:\n{self.log()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.wait(timeout=300)

    def run(self, program: Path, *arguments: str) -> None:
        """Run a program to its end.

        Raises:
            AssertionError: it raised something, or Spark has died.
        """
        self._line.write(json.dumps([str(program), *arguments]) + "\n")
        self._line.flush()
        answer = self._line.readline()
        assert answer, f"Spark died; its log ends:\n{self.log()}"
        assert json.loads(answer) is None, json.loads(answer)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]


def serve(port: int, *, connect: bool) -> None:
    """Run the programs that are asked for in one session, until nobody is left who could ask."""
    from pyspark.sql import SparkSession

    # For some rows, generated code costs more than it saves.
    no_code = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    builder = SparkSession.builder.config(map=no_code)
    session = (builder.remote("local[2]") if connect else builder.master("local[2]")).getOrCreate()
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        for line in lines:
            program, *arguments = json.loads(line)
            answer = None
            try:
                runpy.run_path(program)["main"](session, *arguments)
            except BaseException:
                answer = traceback.format_exc()
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    session.stop()


if __name__ == "__main__":
    serve(int(sys.argv[1]), connect="--connect" in sys.argv)
