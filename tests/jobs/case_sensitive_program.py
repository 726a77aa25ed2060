"""Runs plans as `spark_program` does, in a session in which names that differ by case alone are two."""

import runpy
from pathlib import Path

CASE = "spark.sql.caseSensitive"


def main(session, *locations):
    session.conf.set(CASE, "true")
    try:
        runpy.run_path(str(Path(__file__).with_name("spark_program.py")))["main"](session, *locations)
    finally:
        session.conf.unset(CASE)
