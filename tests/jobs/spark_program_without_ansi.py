"""Runs plans as `spark_program` does, in a session whose arithmetic and casts are not those of ANSI."""

import runpy
from pathlib import Path

ANSI = "spark.sql.ansi.enabled"


def main(session, *locations):
    session.conf.set(ANSI, "false")
    try:
        runpy.run_path(str(Path(__file__).with_name("spark_program.py")))["main"](session, *locations)
    finally:
        session.conf.unset(ANSI)
