"""Reads tables as DataFrames in the session that it is given, and writes down what came."""

import json
import pickle

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs.spark import package
from airflow_iceberg.jobs.spark.read_table import read_table

assert package.archive(), f"the core was imported from {package.ROOT} and not from the zip"


def answer(session, location, settings):
    show = settings.pop("show", None)
    try:
        frame = read_table(session, location, **settings)
        if show:
            frame = frame.selectExpr(*show)
        return {"schema": frame.schema.simpleString(), "rows": [row.asDict(recursive=True) for row in frame.collect()]}
    except IcebergError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(session, questions, answers):
    with open(questions) as source:
        found = {name: answer(session, location, settings) for name, (location, settings) in json.load(source).items()}
    with open(answers, "wb") as sink:
        pickle.dump({"version": session.version, **found}, sink)
