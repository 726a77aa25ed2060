"""Runs plans as `spark_program` does, in a session with another value of one of Spark's settings."""

import runpy
from pathlib import Path


def main(session, name, value, *locations):
    session.conf.set(name, value)
    try:
        runpy.run_path(str(Path(__file__).with_name("spark_program.py")))["main"](session, *locations)
    finally:
        session.conf.unset(name)
