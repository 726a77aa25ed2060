"""The classes that Spark loads, in an archive: with it a Spark of the tests starts in two thirds of the processor time.

    python -m tests.support.java_classes .venv/.spark-classes.jsa

That is Java's class data sharing. Java ignores the archive of another Java or Spark; an empty one is none.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / ".spark-classes.jsa"
# No Spark of the tests lives long enough to earn back what the optimising compiler takes: half of the processor time.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Without the second part a JVM would warn on its standard output of an archive that is not its own.
FROM_ARCHIVE = f"{BRIEF} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
JVM_OPTIONS = FROM_ARCHIVE if ARCHIVE.is_file() and ARCHIVE.stat().st_size else BRIEF
PROGRAM = """from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()
spark.sparkContext.parallelize(range(2), 1).map(str).collect()
spark.stop()
"""


def make_archive(target: Path) -> None:
    from airflow_iceberg.jobs.spark.installation import environment, spark_home

    with tempfile.TemporaryDirectory() as folder:
        made, program = Path(folder, "classes.jsa"), Path(folder, "program.py")
        program.write_text(PROGRAM)
        options = {"SPARK_SUBMIT_OPTS": f"{BRIEF} -XX:ArchiveClassesAtExit={made}", "PYSPARK_PYTHON": sys.executable}
        command = [str(spark_home() / "bin" / "spark-submit"), str(program)]
        environ = {**os.environ, **environment(), **options}
        subprocess.run(command, env=environ, cwd=folder, capture_output=True, check=False)
        target.write_bytes(made.read_bytes() if made.is_file() else b"")


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))
