"""Asks Spark each query over whole tables, over their rows in another order, and over what is read of them.

The tables are texts of SQL, whose rows Spark has at hand: a query takes some hundredths of a second.
"""

import json

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException


def answer(session, query):
    """Return the rows in any order; None if the query is none, or fails, or if Spark itself has a fault in it."""
    try:
        return sorted(repr(list(row)) for row in session.sql(query).collect())
    except (PySparkException, Py4JJavaError):
        return None


def look(session, views):
    for name, text in views.items():
        session.sql(text).createOrReplaceTempView(name)


def judge(session, case, whole, turned):
    """Return None for a query that is none, else what is right and what came."""
    look(session, whole)
    expected = answer(session, case["query"])
    if expected is None:
        return None
    look(session, turned)
    if answer(session, case["query"]) != expected:
        return None
    look(session, case["read"])
    return [expected, answer(session, case["query"])]


def main(session, questions, answers):
    with open(questions) as source:
        asked = json.load(source)
    for name, text in asked["tables"].items():
        session.sql(text).createOrReplaceTempView(name)
    found, valid = [], 0
    for case in asked["cases"]:
        if valid == asked["count"]:
            break
        settings = {"spark.sql.session.timeZone": "UTC", **case["settings"]}
        before = {name: session.conf.get(name) for name in settings}
        for name, value in settings.items():
            session.conf.set(name, value)
        found.append(judge(session, case, asked["whole"], asked["turned"]))
        valid += found[-1] is not None
        for name, value in before.items():
            session.conf.set(name, value)
    with open(answers, "w") as sink:
        json.dump(found, sink)
